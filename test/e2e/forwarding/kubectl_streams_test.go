package forwarding

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/controlplane"
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

// TestKubectlExecByTurns has a process and its user wait for each other.
func TestKubectlExecByTurns(t *testing.T) {
	eachUpgrade(t, func(t *testing.T, via *door, env []string, ns, pod string) {
		k := via.start(t, env, "exec", verbose, "-i", "-n", ns, pod, "--", "sh", "-c",
			`echo ready; while read line; do echo "got $line"; done; echo end`)
		k.want("ready")
		for i := range 5 {
			k.say(fmt.Sprint("line ", i))
			k.want(fmt.Sprint("got line ", i))
		}
		_ = k.stdin.Close()
		k.want("end")
		k.end()
		k.wantUpgrade()
	})
}

func TestKubectlAttach(t *testing.T) {
	eachUpgrade(t, func(t *testing.T, via *door, env []string, ns, pod string) {
		k := via.start(t, env, "attach", verbose, "-i", "-q", "-n", ns, pod)
		for i := range 5 {
			k.say(fmt.Sprint("line ", i))
			k.want(fmt.Sprint("heard line ", i))
		}
		_ = k.stdin.Close()
		k.end()
		k.wantUpgrade()
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

func TestKubectlCopy(t *testing.T) {
	eachUpgrade(t, func(t *testing.T, via *door, env []string, ns, pod string) {
		// The pod's files are this machine's.
		here, there, back := t.TempDir(), t.TempDir(), t.TempDir()
		want := map[string]string{
			"small":      "hello\n",
			"empty":      "",
			"all/bytes":  string(allBytes()),
			"all/larger": strings.Repeat("0123456789abcdef", 20<<16), // 20 MiB: more than unfinished requests may have
		}
		for name, content := range want {
			path := filepath.Join(here, "files", name)
			expect.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
			expect.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		}
		for _, args := range [][]string{
			{"cp", filepath.Join(here, "files"), ns + "/" + pod + ":" + there},
			{"cp", ns + "/" + pod + ":" + filepath.Join(there, "files"), filepath.Join(back, "files")},
		} {
			if o := via.run(t, env, "", args...); o.Code != 0 {
				t.Fatalf("kubectl %v: %s", args, o.Err)
			}
		}
		for name, content := range want {
			got, err := os.ReadFile(filepath.Join(back, "files", name))
			if err != nil || string(got) != content {
				t.Errorf("%s: %v, %d bytes of %d", name, err, len(got), len(content))
			}
		}
	})
}

// TestStoppedKubectl: a kubectl that is stopped, or whose pager is not read, for longer than answers
// from memory wait, finds its stream where it was, as at kube-apiserver.
func TestStoppedKubectl(t *testing.T) {
	harness.Long(t)
	const lines, longer = 20_000, time.Minute + 5*time.Second
	p := startProcess(t, harness.ProxyOptions{Upstream: cp.RESTConfig(controlplane.Feed)})
	d := doorOf(t, throughProxy(p))
	ns := newNamespace(t)
	line := func(i int) string { return fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000)) }
	type flood struct {
		what    string
		kubectl *interactive
		stopped bool
		sent    atomic.Int64
		last    int64
		since   time.Time
	}
	var floods []*flood
	for name, env := range map[string][]string{"HTTP/2": nil, "HTTP/1.1": {"DISABLE_HTTP2=true"}} {
		for _, stopped := range []bool{true, false} {
			pod := fmt.Sprintf("flood-%s-%t", name[5:6], stopped)
			newPod(t, ns, pod)
			log := kubelet.grow(pod)
			f := &flood{what: fmt.Sprintf("%s, SIGSTOP %t", name, stopped), kubectl: d.start(t, env, "logs", "-n", ns, pod, "-f"), stopped: stopped}
			for line := range strings.Lines(oldLog) {
				f.kubectl.want(strings.TrimSuffix(line, "\n"))
			}
			if stopped {
				expect.NoError(t, f.kubectl.cmd.Process.Signal(syscall.SIGSTOP))
			}
			go func() {
				defer close(log.lines)
				for i := range lines {
					select {
					case log.lines <- line(i):
						f.sent.Add(1)
					case <-t.Context().Done():
						return
					}
				}
			}()
			floods = append(floods, f)
		}
	}
	poll.Until(t, patience, "nothing more is read for longer than the bound", func() bool {
		stuck := 0
		for _, f := range floods {
			if now := f.sent.Load(); now == 0 || now != f.last {
				f.last, f.since = now, time.Now()
			}
			if time.Since(f.since) > longer {
				stuck++
			}
		}
		return stuck == len(floods)
	})
	for _, f := range floods {
		if f.last == lines {
			t.Fatalf("%s: all lines are on their way: more are needed", f.what)
		}
		if f.stopped {
			expect.NoError(t, f.kubectl.cmd.Process.Signal(syscall.SIGCONT))
		}
		for i := range lines {
			f.kubectl.want(line(i))
		}
		f.kubectl.end()
	}
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
