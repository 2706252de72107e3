package forwarding

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// eachUpgrade runs a test through both doors and with both protocols that kubectl speaks, with a
// pod for each.
func eachUpgrade(t *testing.T, test func(t *testing.T, via *door, env []string, ns, pod string)) {
	eachDoor(t, func(t *testing.T, via *door) { eachUpgradeOf(t, via, test) })
}

func eachUpgradeOf(t *testing.T, via *door, test func(t *testing.T, via *door, env []string, ns, pod string)) {
	for _, protocol := range []string{"websocket", "SPDY"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			newPod(t, ns, "pod")
			test(t, via, []string{
				fmt.Sprintf("KUBECTL_REMOTE_COMMAND_WEBSOCKETS=%v", protocol == "websocket"),
				fmt.Sprintf("KUBECTL_PORT_FORWARD_WEBSOCKETS=%v", protocol == "websocket"),
			}, ns, "pod")
		})
	}
}

// verbose makes kubectl say how it upgraded its connection.
const verbose = "-v=4"

// wantUpgrade requires of a verbose kubectl, which has ended, that it used the protocol that it was
// told to: where a websocket is refused, it quietly falls back to SPDY.
func (k *interactive) wantUpgrade() {
	k.t.Helper()
	told, said := strings.HasSuffix(k.t.Name(), "/websocket"), k.errs.String()
	if strings.Contains(said, "negotiated") != told || strings.Contains(said, "fallback") {
		k.t.Errorf("told to use websockets: %v. kubectl said: %s", told, said)
	}
}

func TestKubectlExec(t *testing.T) {
	harness.Long(t)
	eachUpgrade(t, func(t *testing.T, via *door, env []string, ns, pod string) {
		exec := func(args ...string) []string { return append([]string{"exec", "-n", ns}, args...) }
		for _, test := range []struct {
			stdin string
			args  []string
		}{
			{args: exec(pod, "--", "echo", "hello")},
			{args: exec(pod, "--", "sh", "-c", "echo out; echo err >&2")},
			{args: exec(pod, "--", "sh", "-c", "exit 7")},
			{args: exec(pod, "--", "no-such-command")},
			{args: exec(pod, "-c", "other", "--", "true")},
			{args: exec("no-such-pod", "--", "true")},
			{args: exec("-i", pod, "--", "sort"), stdin: "b\nc\na\n"},
			{args: exec("-i", pod, "--", "wc", "-c"), stdin: strings.Repeat("0123456789", 100_000)},
			{args: exec(pod, "--", "seq", "100000")},
			{args: exec(pod, "--as=alice", "--", "true")},
		} {
			want := direct.run(t, env, test.stdin, test.args...)
			got := via.run(t, env, test.stdin, test.args...)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("kubectl %v (-direct +via):\n%s", test.args, d)
			}
		}
	})
}

func TestKubectlPortForward(t *testing.T) {
	// What listens in the pod answers by lines.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for in := bufio.NewScanner(conn); in.Scan(); {
					_, _ = fmt.Fprintf(conn, "port heard %s\n", in.Text())
				}
			}()
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	expect.NoError(t, err)
	eachUpgrade(t, func(t *testing.T, via *door, env []string, ns, pod string) {
		k := via.start(t, env, "port-forward", verbose, "-n", ns, pod, ":"+port, "--address=127.0.0.1")
		said := strings.Fields(await(t, "kubectl forwards", k.lines))
		if len(said) != 5 || said[0] != "Forwarding" {
			t.Fatalf("kubectl said %q: %s", said, k.errs.String())
		}
		for range 3 { // connections
			conn, err := net.Dial("tcp", said[2])
			expect.NoError(t, err)
			in := bufio.NewReader(conn)
			for i := range 5 {
				_, _ = fmt.Fprintf(conn, "line %d\n", i)
				if line, err := in.ReadString('\n'); line != fmt.Sprintf("port heard line %d\n", i) {
					t.Fatalf("%q, %v", line, err)
				}
			}
			// Its own end is answered by the other's.
			_ = conn.(*net.TCPConn).CloseWrite()
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("%q, %v", rest, err)
			}
			_ = conn.Close()
		}
		k.kill()
		k.wantUpgrade()
	})
}

// TestStoppedKubectlWatch: a watch whose kubectl is stopped for longer than most servers wait for the
// answer to a ping goes on where it was, as at kube-apiserver, which sends none.
func TestStoppedKubectlWatch(t *testing.T) {
	harness.Long(t)
	const stopped = 50 * time.Second
	eachDoor(t, func(t *testing.T, via *door) {
		t.Parallel()
		for name, env := range map[string][]string{"HTTP/2": nil, "HTTP/1.1": {"DISABLE_HTTP2=true"}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ns := newNamespace(t)
				newConfigMap(t, ns, "before", nil)
				k := via.start(t, env, "get", "configmaps", "-n", ns, "--watch", "-o", "name")
				k.want("configmap/before")
				expect.NoError(t, k.cmd.Process.Signal(syscall.SIGSTOP))
				newConfigMap(t, ns, "meanwhile", nil)
				poll.Pause(t.Context(), stopped)
				expect.NoError(t, k.cmd.Process.Signal(syscall.SIGCONT))
				k.want("configmap/meanwhile")
				newConfigMap(t, ns, "after", nil)
				k.want("configmap/after")
			})
		}
	})
}
