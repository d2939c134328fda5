// Runs Apache Kafka's command line tools one after another in one JVM, which takes a second to start.
//
//   in   one call a line: main class, standard input, arguments; each in base 64, a tab between two
//   out  exit status, standard output, standard error of each; -1 for a call that does not end
//
// The tools end by Kafka's own Exit, which throws here instead.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

public class ToolRunner {
    static final long TIMEOUT_MS = 60_000;

    static class Ended extends RuntimeException {
        final int status;

        Ended(int status) {
            super("exit status " + status, null, false, false);
            this.status = status;
        }
    }

    /** What a tool prints, whenever the one who prints has taken hold of the stream. */
    static class Captured extends OutputStream {
        ByteArrayOutputStream buffer = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int b) {
            buffer.write(b);
        }

        @Override
        public synchronized void write(byte[] b, int from, int count) {
            buffer.write(b, from, count);
        }

        synchronized String take() {
            String text = buffer.toString(StandardCharsets.UTF_8);
            buffer = new ByteArrayOutputStream();
            return text;
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Captured out = new Captured();
        Captured err = new Captured();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status);
        });
        Exit.setHaltProcedure((status, message) -> {
            throw new Ended(status);
        });
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            String[] fields = line.split("\t", -1);
            String[] arguments = new String[fields.length - 2];
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = decoded(fields[i + 2]);
            }
            int status = call(decoded(fields[0]), decoded(fields[1]), arguments);
            answers.println(status + "\t" + encoded(out.take()) + "\t" + encoded(err.take()));
            answers.flush();
        }
    }

    static int call(String tool, String input, String[] arguments) throws InterruptedException {
        int[] status = {-1};
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        Thread thread = new Thread(() -> {
            try {
                Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
                status[0] = 0;
            } catch (InvocationTargetException problem) {
                if (problem.getCause() instanceof Ended) {
                    status[0] = ((Ended) problem.getCause()).status;
                } else {
                    problem.getCause().printStackTrace();
                    status[0] = 1;
                }
            } catch (Throwable problem) {
                problem.printStackTrace();
                status[0] = 2;
            }
        }, tool);
        thread.setDaemon(true);
        thread.start();
        thread.join(TIMEOUT_MS);
        return status[0];
    }

    static String decoded(String field) {
        return new String(Base64.getDecoder().decode(field), StandardCharsets.UTF_8);
    }

    static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
