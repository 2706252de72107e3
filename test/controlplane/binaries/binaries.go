// Package binaries builds the programs that a control plane and its tests run, and keeps them in bin/ of the repository. They
// are etcd, kube-apiserver, kubectl and, on demand, kube-apiservers of other versions, helm, promtool, and the tests of other
// projects. The versions are pinned by go.mod files: each of the modules that [ControlPlane] and [Tool] name pins one program
// or a few.
package binaries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/listproxy/listproxy/test/controlplane/filelock"
)

const (
	modulePath = "github.com/listproxy/listproxy"
	// toolsDir is the directory of the module that pins etcd, kubectl and the usual kube-apiserver.
	toolsDir = "test/controlplane/tools"
	// otherTools is a pattern for the directories of modules such as tools-1.35. Each pins only a kube-apiserver, of another
	// version.
	otherTools = toolsDir + "-[0-9]*"
	kubernetes = "k8s.io/kubernetes"
)

// Paths are the paths of a control plane's programs.
type Paths struct {
	Etcd          string
	KubeAPIServer string
	Kubectl       string
}

// A tool is a program to build.
type tool struct {
	name   string // the name of the program, a file in bin/
	pkg    string // the main package, or with test the package whose tests become the program
	module string // the program gets the version of this module
	tags   string // build tags for go build
	test   bool   // build with go test -c
	cgo    bool   // go build may use cgo
}

// ControlPlane returns the paths of etcd, kube-apiserver and kubectl in bin/ of the repository, and the version of
// kube-apiserver. The argument version is that of the wanted kube-apiserver, such as "1.32.13"; "" is the version that tools/
// pins. ControlPlane builds the programs that are missing, or that were built from another recipe: from other versions, other
// sources or with other flags. That takes minutes, and is logged. If several processes call it at once, one builds and the
// others wait.
func ControlPlane(ctx context.Context, log func(string), version string) (Paths, string, error) {
	root, err := RepoRoot()
	if err != nil {
		return Paths{}, "", err
	}
	moduleDir, version, err := findModule(root, version)
	if err != nil {
		return Paths{}, "", err
	}
	name := "kube-apiserver"
	if moduleDir != toolsDir {
		name += "-" + version
	}
	err = ensureBuilt(ctx, log, root, toolsDir,
		tool{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", module: "go.etcd.io/etcd/server/v3"},
		tool{name: "kubectl", pkg: kubernetes + "/cmd/kubectl", module: kubernetes})
	if err != nil {
		return Paths{}, "", err
	}
	err = ensureBuilt(ctx, log, root, moduleDir, tool{name: name, pkg: kubernetes + "/cmd/kube-apiserver", module: kubernetes})
	if err != nil {
		return Paths{}, "", err
	}
	bin := filepath.Join(root, "bin")
	paths := Paths{Etcd: filepath.Join(bin, "etcd"), KubeAPIServer: filepath.Join(bin, name), Kubectl: filepath.Join(bin, "kubectl")}
	return paths, version, nil
}

// pinLine matches the line of a go.mod that pins a version of Kubernetes.
var pinLine = regexp.MustCompile(regexp.QuoteMeta(kubernetes) + ` v(\S+)`)

// findModule returns the directory, below root, of the module that pins a version of kube-apiserver, and that version. For ""
// it returns toolsDir and its version.
func findModule(root, version string) (moduleDir, found string, err error) {
	others, err := filepath.Glob(filepath.Join(root, otherTools))
	if err != nil {
		return "", "", err
	}
	var known []string
	for _, dir := range append([]string{filepath.Join(root, toolsDir)}, others...) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod")) // #nosec G304 -- of this repository
		if err != nil {
			return "", "", err
		}
		match := pinLine.FindStringSubmatch(string(mod))
		if match == nil {
			return "", "", fmt.Errorf("%s/go.mod does not require %s", dir, kubernetes)
		}
		pinned := match[1]
		if version == "" || version == pinned {
			moduleDir, err = filepath.Rel(root, dir)
			return moduleDir, pinned, err
		}
		known = append(known, pinned)
	}
	return "", "", fmt.Errorf("no module pins kube-apiserver %s: choose one of %s, or add a module beside %s",
		version, strings.Join(known, ", "), toolsDir)
}

// ensureBuilt builds each of the tools, unless it is in bin/ and was built from the current recipe. moduleDir is the directory,
// below root, of the module that pins the tools. A stamp file beside each program has the hash of its recipe.
func ensureBuilt(ctx context.Context, log func(string), root, moduleDir string, tools ...tool) error {
	source, bin := filepath.Join(root, moduleDir), filepath.Join(root, "bin")
	recipe, err := recipeHash(source)
	if err != nil {
		return err
	}
	isBuilt := func(t tool) bool {
		_, err := os.Stat(filepath.Join(bin, t.name))
		stamp, _ := os.ReadFile(stampFile(bin, t))
		return err == nil && string(stamp) == recipe
	}
	for _, t := range tools {
		if isBuilt(t) {
			continue
		}
		if err := os.MkdirAll(bin, 0o750); err != nil {
			return err
		}
		lock, err := filelock.Wait(ctx, filepath.Join(bin, ".lock"), func() {
			log("waiting for another process that builds the control plane")
		})
		if err != nil {
			return err
		}
		if !isBuilt(t) { // another process may have built it meanwhile
			err = buildAndStamp(ctx, log, source, bin, recipe, t)
		}
		lock.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// buildAndStamp builds a tool, and then writes its stamp file.
func buildAndStamp(ctx context.Context, log func(string), source, bin, recipe string, t tool) error {
	if err := build(ctx, log, source, bin, t); err != nil {
		return err
	}
	return os.WriteFile(stampFile(bin, t), []byte(recipe), 0o600)
}

// RepoRoot returns the root of this repository: of the working directory and the directories above, the one with the go.mod of
// this module.
func RepoRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod")) // #nosec G304 -- a go.mod above us
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if strings.HasPrefix(string(mod), "module "+modulePath+"\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of module %s in %s or above: run this inside the repository", modulePath, wd)
		}
	}
}

// stampFile returns the path of the file with the hash of the recipe from which a binary was built.
func stampFile(bin string, t tool) string { return filepath.Join(bin, "."+t.name+".stamp") }

// recipeHash returns a hash of the recipe in a module's directory: of everything that a build there depends on. That is the
// go.mod, the go.sum and the sources in the directory, and the flags of this package.
func recipeHash(dir string) (string, error) {
	h := sha256.New()
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	for _, path := range append([]string{filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum")}, sources...) {
		b, err := os.ReadFile(path) // #nosec G304 -- a file of the repository
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(h, "%s %d\n%s", filepath.Base(path), len(b), b)
	}
	const anyVersion = "v0.0.0" // the versions themselves are in go.mod
	_, _ = fmt.Fprintf(h, "%q", buildFlags(anyVersion, ""))
	return hex.EncodeToString(h.Sum(nil)), nil
}
