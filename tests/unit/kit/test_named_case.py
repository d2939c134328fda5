"""A test that loops over its cases names the one that failed."""

import pytest


@pytest.mark.parametrize(
    "failing", ["assert case != 'b'", "with pytest.raises(ValueError): int('1')", "pytest.fail('no')"]
)
def test_failure_names_its_case(pytester: pytest.Pytester, failing: str) -> None:
    pytester.makepyfile(f"""
        import pytest
        from tests.kit.harness.named_case import named_case

        def test_all():
            for case in "abc":
                with named_case(case):
                    if case == "b":
                        {failing}
    """)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*case: b"])
