package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	modulePath = "github.com/listproxy/listproxy"
	toolsDir   = "test/controlplane/tools"
	binDir     = "bin"
)

// Paths says where the binaries of the control plane are.
type Paths struct {
	Etcd          string
	KubeAPIServer string
	Kubectl       string
}

// A tool is a binary to build: the package that is its main, and the module that its version
// is read from.
type tool struct{ name, pkg, module string }

func tools() []tool {
	return []tool{
		{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", module: "go.etcd.io/etcd/server/v3"},
		{name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver", module: "k8s.io/kubernetes"},
		{name: "kubectl", pkg: "k8s.io/kubernetes/cmd/kubectl", module: "k8s.io/kubernetes"},
	}
}

// Binaries makes sure that etcd, kube-apiserver and kubectl are in bin/ of the repository that
// holds the working directory, as the nested tools module pins them, and returns their paths.
// It builds what is missing or was built from another go.mod or go.sum, which takes minutes
// and is told to log in a line every few seconds. Callers in several processes wait for one
// build.
func Binaries(ctx context.Context, log func(string)) (Paths, error) {
	root, err := repoRoot()
	if err != nil {
		return Paths{}, err
	}
	bin := filepath.Join(root, binDir)
	paths := Paths{
		Etcd:          filepath.Join(bin, "etcd"),
		KubeAPIServer: filepath.Join(bin, "kube-apiserver"),
		Kubectl:       filepath.Join(bin, "kubectl"),
	}
	module := filepath.Join(root, filepath.FromSlash(toolsDir))
	want, err := recipeHash(module)
	if err != nil {
		return Paths{}, err
	}
	if len(stale(bin, want)) == 0 {
		return paths, nil
	}
	if err := os.MkdirAll(bin, 0o750); err != nil {
		return Paths{}, fmt.Errorf("make the folder for binaries: %w", err)
	}
	lock, err := waitLock(ctx, filepath.Join(bin, ".lock"), func() {
		log("waiting for another process that builds the control plane")
	})
	if err != nil {
		return Paths{}, err
	}
	defer lock.unlock()
	// What another process built while this one waited needs no second build.
	for _, t := range stale(bin, want) {
		if err := build(ctx, log, module, bin, t); err != nil {
			return Paths{}, err
		}
		if err := os.WriteFile(stampFile(bin, t), []byte(want), 0o600); err != nil {
			return Paths{}, fmt.Errorf("remember what %s was built from: %w", t.name, err)
		}
	}
	return paths, nil
}

// repoRoot walks up from the working directory to the go.mod of this repository's module.
func repoRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod")) // #nosec G304 -- a go.mod above us
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find the repository: %w", err)
		}
		for line := range strings.Lines(string(mod)) {
			if strings.TrimSpace(line) == "module "+modulePath {
				return dir, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of module %s in %s or above: run this inside the repository", modulePath, wd)
		}
	}
}

// stale returns the tools whose binary is missing or was not built from the recipe want.
func stale(bin, want string) []tool {
	var out []tool
	for _, t := range tools() {
		info, err := os.Stat(filepath.Join(bin, t.name))
		stamp, _ := os.ReadFile(stampFile(bin, t))
		if err != nil || !info.Mode().IsRegular() || strings.TrimSpace(string(stamp)) != want {
			out = append(out, t)
		}
	}
	return out
}

// stampFile is where the recipe that a binary was built from is remembered.
func stampFile(bin string, t tool) string { return filepath.Join(bin, "."+t.name+".stamp") }

// recipeHash identifies all that decides what is built: the pinned modules and the flags.
func recipeHash(module string) (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(module, name)) // #nosec G304 -- a fixed name in the repository
		if err != nil {
			return "", fmt.Errorf("read the tools module: %w", err)
		}
		_, _ = fmt.Fprintf(h, "%s %d\n%s", name, len(b), b)
	}
	_, _ = fmt.Fprintf(h, "%q", buildFlags("v0.0.0", ""))
	return hex.EncodeToString(h.Sum(nil)), nil
}
