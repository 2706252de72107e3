package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/controlplane/filelock"
)

var (
	// BuildProxy compiles listproxy with the race detector, once in a process, and returns its path in bin/.
	BuildProxy = sync.OnceValues(func() (string, error) { return compile("listproxy-race", "-race") })
	// BuildPlainProxy compiles listproxy without the race detector, whose own memory grows.
	BuildPlainProxy = sync.OnceValues(func() (string, error) { return compile("listproxy") })
)

// compile compiles listproxy into bin/ and returns its path. Test processes that run at the same time compile one after the
// other: the first links, and the others find the program up to date.
func compile(name string, flags ...string) (string, error) {
	root, err := binaries.RepoRoot()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin")
	if err := os.MkdirAll(bin, 0o750); err != nil {
		return "", err
	}
	ctx := context.Background()
	lock, err := filelock.Wait(ctx, filepath.Join(bin, "."+name+".lock"), func() {})
	if err != nil {
		return "", err
	}
	defer lock.Unlock()
	// Another test process may be running the old program, so go build does not write to its path. It writes to fresh, which is
	// then renamed. fresh begins as a link to the old program: if that is up to date, go build leaves it as it is.
	path := filepath.Join(bin, name)
	fresh := path + ".fresh"
	defer func() { _ = os.Remove(fresh) }() // rename(2) leaves both names if they are links to one file
	if err := os.Link(path, fresh); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	args := slices.Concat([]string{"build", "-o", fresh}, flags, []string{"./cmd/listproxy"})
	cmd := exec.CommandContext(ctx, "go", args...) // #nosec G204 -- words of this package
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building listproxy: %w\n%s", err, out)
	}
	return path, os.Rename(fresh, path)
}
