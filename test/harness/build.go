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
	// BuildProxy compiles the command with the race detector, once in a process, and returns its path in bin/.
	BuildProxy = sync.OnceValues(func() (string, error) { return compile("listproxy-race", "-race") })
	// BuildPlainProxy compiles it as it is shipped, but without a version: no race detector, whose own
	// memory grows.
	BuildPlainProxy = sync.OnceValues(func() (string, error) { return compile("listproxy") })
)

// compile compiles the command into bin/, and returns its path. The test processes of one make test
// build in turn: the first links, and the others find that what is there is up to date.
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
	// Built beside and moved: another test process may be running the old one. The link lets the go
	// command see what is there already.
	path := filepath.Join(bin, name)
	fresh := path + ".fresh"
	defer func() { _ = os.Remove(fresh) }() // where nothing was built, both names are one file's
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
