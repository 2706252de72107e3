package operators

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/harness/pages"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestReadmeWalk: the README's commands to try listproxy work, and so does the curl of docs/operate.md that asks /readyz. The
// commands leave no files behind. Files with tokens can be read only by their owner, even if the umask lets anybody read new
// files. The first block of commands, which builds listproxy, is not run. In the others shell replaces a few words.
func TestReadmeWalk(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	blocks := blocksOf(t, "Try it on your cluster in ten minutes")
	if len(blocks) != 5 {
		t.Fatalf("the README has %d blocks of commands, and this test knows five", len(blocks))
	}
	build, account := blocks[0], blocks[1]
	run, client := blocks[2], blocks[3]
	remove := blocks[4]
	if !strings.Contains(build, "make build") {
		t.Errorf("the first block does not build: %s", build)
	}
	w.run(t, account)
	w.start(t, run)
	out := w.run(t, client)
	for _, readyz := range pages.Matches(`(?m)^\$ (curl .*/readyz.*)$`, pages.Read(t, "docs/operate.md")) {
		out += w.run(t, readyz)
	}
	expect.Says(t, out, "from memory", "Cache-Status: listproxy; hit; detail=any", `"kind":"NamespaceList"`, "[+]upstream ok\n")
	for _, name := range []string{"listproxy.kubeconfig", "proxy.kubeconfig"} {
		info, err := os.Stat(filepath.Join(w.dir, name))
		expect.NoError(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s, with a token, has mode %v", name, info.Mode().Perm())
		}
	}
	w.stop(t)
	w.run(t, remove)
	left, err := os.ReadDir(w.dir)
	expect.NoError(t, err)
	for _, entry := range left {
		if name := entry.Name(); name != "bin" && name != "docs" && name != "home" {
			t.Errorf("step 5 of the README leaves %s", name)
		}
	}
}

// walk is a folder in which the README's commands run.
type walk struct {
	dir         string
	env         []string
	port, admin int

	proxy *exec.Cmd
	log   logbuffer.Buffer
}

// newWalk returns a folder with the program, the docs and an admin's kubeconfig.
func newWalk(t *testing.T) *walk {
	t.Helper()
	w := &walk{dir: t.TempDir(), port: controlplane.FreePort(t), admin: controlplane.FreePort(t)}
	program, err := harness.BuildProxy()
	expect.NoError(t, err)
	root, err := binaries.RepoRoot()
	expect.NoError(t, err)
	home := filepath.Join(w.dir, "home")
	for _, dir := range []string{filepath.Join(w.dir, "bin"), home} {
		expect.NoError(t, os.Mkdir(dir, 0o700))
	}
	for link, target := range map[string]string{"bin/listproxy": program, "docs": filepath.Join(root, "docs")} {
		expect.NoError(t, os.Symlink(target, filepath.Join(w.dir, link)))
	}
	own, err := os.ReadFile(cp.KubeconfigPath(controlplane.Admin))
	expect.NoError(t, err)
	kubeconfig := filepath.Join(home, "config")
	expect.NoError(t, os.WriteFile(kubeconfig, own, 0o600))
	kubectl := filepath.Dir(cp.Binaries().Kubectl)
	w.env = []string{"HOME=" + home, "KUBECONFIG=" + kubeconfig, "PATH=" + kubectl + ":/usr/bin:/bin"}
	return w
}

// blocksOf returns the blocks of commands in a section of the README. In a block with prompts only the lines behind
// prompts are commands.
func blocksOf(t *testing.T, section string) (blocks []string) {
	t.Helper()
	_, rest, ok := strings.Cut(pages.Read(t, "README.md"), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("the README has no section %q", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	for _, block := range pages.Matches("(?s)\n```\n(.*?)\n```\n", rest) {
		if strings.HasPrefix(block, "$ ") {
			block = strings.Join(pages.Matches(`(?m)^\$ (.*)$`, block), "\n")
		}
		blocks = append(blocks, block)
	}
	return blocks
}

// shell returns bash with commands of the README, at ports of this test, and without a wait that would not end.
func (w *walk) shell(t *testing.T, commands string) *exec.Cmd {
	t.Helper()
	for from, to := range map[string]string{
		"--bind-address 127.0.0.1": fmt.Sprintf("--bind-address 127.0.0.1 --secure-port %d --admin-bind-address 127.0.0.1:%d", w.port, w.admin),
		"127.0.0.1:8081":           fmt.Sprintf("127.0.0.1:%d", w.admin),
		"bin/listproxy kubeconfig": fmt.Sprintf("bin/listproxy kubeconfig --server https://127.0.0.1:%d", w.port),
		// Namespaces do not end without a controller manager.
		"kubectl delete -f": "kubectl delete --wait=false -f",
	} {
		commands = strings.ReplaceAll(commands, from, to)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -e -o pipefail\numask 022\n"+commands) // #nosec G204 -- the README's words
	cmd.Dir, cmd.Env = w.dir, w.env
	return cmd
}

// run runs commands and returns their output.
func (w *walk) run(t *testing.T, commands string) string {
	t.Helper()
	out, err := w.shell(t, commands).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s%s", err, commands, out, w.log.String())
	}
	return string(out)
}

// start starts listproxy by the README's command, and waits until it serves.
func (w *walk) start(t *testing.T, command string) {
	t.Helper()
	w.proxy = w.shell(t, "exec "+command)
	w.proxy.Stdout, w.proxy.Stderr = &w.log, &w.log
	expect.NoError(t, w.proxy.Start())
	poll.Until(t, patience, "listproxy to serve", func() bool { return strings.Contains(w.log.String(), "msg=serving ") })
}

// stop ends listproxy as Ctrl-C does.
func (w *walk) stop(t *testing.T) {
	t.Helper()
	expect.NoError(t, w.proxy.Process.Signal(syscall.SIGINT))
	if err := w.proxy.Wait(); err != nil {
		t.Errorf("listproxy ended with %v\n%s", err, w.log.String())
	}
}
