// Package binaries builds what a control plane and its tests run: etcd, kube-apiserver, kubectl,
// and on demand other kube-apiservers, helm, promtool, Jaeger, and the tests of other projects. Each
// is pinned by a module of its own.
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
	"slices"
	"strings"

	"github.com/listproxy/listproxy/test/controlplane/filelock"
)

const (
	modulePath = "github.com/listproxy/listproxy"
	toolsDir   = "test/controlplane/tools"
	binDir     = "bin"
	// otherTools are the modules beside toolsDir that pin only a kube-apiserver of another version.
	otherTools = toolsDir + "-[0-9]*"
	kubernetes = "k8s.io/kubernetes"
)

// Paths says where the binaries of the control plane are.
type Paths struct {
	Etcd          string
	KubeAPIServer string
	Kubectl       string
}

// A tool is a binary to build: the package that is its main, or that it has the tests of; the module
// that its version is read from; and build tags if it needs some.
type tool struct {
	name, pkg, module, tags string
	test                    bool
}

func tools() []tool {
	return []tool{
		{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", module: "go.etcd.io/etcd/server/v3"},
		{name: "kube-apiserver", pkg: kubernetes + "/cmd/kube-apiserver", module: kubernetes},
		{name: "kubectl", pkg: kubernetes + "/cmd/kubectl", module: kubernetes},
	}
}

// otherAPIServer is the one tool of a module that pins another version.
func otherAPIServer(version string) tool {
	return tool{name: "kube-apiserver-" + version, pkg: kubernetes + "/cmd/kube-apiserver", module: kubernetes}
}

// Build makes sure that etcd, kube-apiserver and kubectl are in bin/ of the repository that
// holds the working directory, as the nested tools module pins them, and returns their paths.
// It builds what is missing or was built from another go.mod or go.sum, which takes minutes
// and is told to log in a line every few seconds. Callers in several processes wait for one
// build.
func Build(ctx context.Context, log func(string)) (Paths, error) {
	root, err := RepoRoot()
	if err != nil {
		return Paths{}, err
	}
	bin := filepath.Join(root, binDir)
	return Paths{
		Etcd:          filepath.Join(bin, "etcd"),
		KubeAPIServer: filepath.Join(bin, "kube-apiserver"),
		Kubectl:       filepath.Join(bin, "kubectl"),
	}, provide(ctx, log, filepath.Join(root, filepath.FromSlash(toolsDir)), bin, tools())
}

// Of is [Build] with the kube-apiserver of a version, as "1.32.13", that a module
// beside tools/ pins; etcd and kubectl stay the same. It returns the version that the paths have.
func Of(ctx context.Context, log func(string), version string) (Paths, string, error) {
	root, err := RepoRoot()
	if err != nil {
		return Paths{}, "", err
	}
	usual := filepath.Join(root, filepath.FromSlash(toolsDir))
	module, version, err := choose(usual, filepath.Join(root, filepath.FromSlash(otherTools)), version)
	if err != nil {
		return Paths{}, "", err
	}
	paths, err := Build(ctx, log)
	if err != nil || module == usual {
		return paths, version, err
	}
	bin, other := filepath.Join(root, binDir), otherAPIServer(version)
	paths.KubeAPIServer = filepath.Join(bin, other.name)
	return paths, version, provide(ctx, log, module, bin, []tool{other})
}

// KubeAPIServer makes sure that the kube-apiserver of a version that a module beside tools/ pins is
// in bin/, as [Build] does, and returns its path.
func KubeAPIServer(ctx context.Context, log func(string), version string) (string, error) {
	paths, _, err := Of(ctx, log, version)
	return paths.KubeAPIServer, err
}

// Tests and programs of other projects, for [Tool], and where the modules are that pin them.
const (
	KubernetesTests        = "kubernetes.test"
	ClusterCache           = "argo-cd-cluster-cache"
	Discovery              = "prometheus-discovery"
	controllerRuntimeTests = "controller-runtime-%s.test"

	KubernetesModule        = "test/e2e/programs/kubernetes"
	ControllerRuntimeModule = "test/e2e/programs/controller-runtime"

	clusterCacheModule = "test/e2e/programs/clustercache"
	discoveryModule    = "test/e2e/programs/discovery"

	controllerRuntime = "sigs.k8s.io/controller-runtime"
	prometheus        = "github.com/prometheus/prometheus"

	cyclonedx  = "github.com/CycloneDX/cyclonedx-gomod"
	registry   = "github.com/google/go-containerregistry"
	actionlint = "github.com/rhysd/actionlint"
)

// ControllerRuntimeTests returns the name of the tests of a package of controller-runtime, as
// "client", and its path.
func ControllerRuntimeTests(of string) (name, pkg string) {
	return fmt.Sprintf(controllerRuntimeTests, of), controllerRuntime + "/pkg/" + of
}

// Tool makes sure that helm, promtool, Jaeger, what makes a release or another project's tests or programs are in bin/, as a module of
// its own pins it, and returns its path. It builds as [Build] does, and only what is asked for.
func Tool(ctx context.Context, log func(string), name string) (string, error) {
	root, err := RepoRoot()
	if err != nil {
		return "", err
	}
	for dir, tools := range map[string][]tool{
		toolsDir + "-helm": {{name: "helm", pkg: "helm.sh/helm/v4/cmd/helm", module: "helm.sh/helm/v4"}},
		// Without what discovers targets in clouds, which would be most of the program.
		toolsDir + "-promtool": {{
			name: "promtool", pkg: prometheus + "/cmd/promtool", module: prometheus, tags: "remove_all_sd",
		}},
		toolsDir + "-krew": {{name: "krew", pkg: "sigs.k8s.io/krew/cmd/krew", module: "sigs.k8s.io/krew"}},
		"test/release/tools": {
			{name: "cyclonedx-gomod", pkg: cyclonedx + "/cmd/cyclonedx-gomod", module: cyclonedx},
			{name: "actionlint", pkg: actionlint + "/cmd/actionlint", module: actionlint},
			{name: "crane", pkg: registry + "/cmd/crane", module: registry},
			{name: "release-image", pkg: ".", module: registry},
		},
		"test/controlplane/jaeger": {{name: "jaeger", pkg: "github.com/jaegertracing/jaeger/cmd/all-in-one", module: "github.com/jaegertracing/jaeger"}},
		KubernetesModule:           {{name: KubernetesTests, pkg: ".", module: kubernetes, test: true}},
		clusterCacheModule:         {{name: ClusterCache, pkg: ".", module: "github.com/argoproj/argo-cd/gitops-engine"}},
		discoveryModule:            {{name: Discovery, pkg: ".", module: prometheus}},
		ControllerRuntimeModule: {
			testsOf("client"), testsOf("cache"), testsOf("manager"),
		},
	} {
		if i := slices.IndexFunc(tools, func(t tool) bool { return t.name == name }); i >= 0 {
			bin := filepath.Join(root, binDir)
			return filepath.Join(bin, name), provide(ctx, log, filepath.Join(root, filepath.FromSlash(dir)), bin, tools[i:i+1])
		}
	}
	return "", fmt.Errorf("no module pins a tool %q", name)
}

func testsOf(of string) tool {
	name, pkg := ControllerRuntimeTests(of)
	return tool{name: name, pkg: pkg, module: controllerRuntime, test: true}
}

// choose returns the module that pins a version of Kubernetes: usual, which is also what no
// version at all means, or one of those that match the pattern others.
func choose(usual, others, version string) (module, pinned string, err error) {
	modules, err := filepath.Glob(others)
	if err != nil {
		return "", "", fmt.Errorf("look for modules of other versions: %w", err)
	}
	var known []string
	for _, module := range append([]string{usual}, modules...) {
		pinned, err := pinnedVersion(module)
		if err != nil {
			return "", "", err
		}
		if version == "" || version == pinned {
			return module, pinned, nil
		}
		known = append(known, pinned)
	}
	return "", "", fmt.Errorf("no module pins kube-apiserver %s: choose one of %s, or add a module beside %s",
		version, strings.Join(known, ", "), toolsDir)
}

// pinnedVersion reads the version of Kubernetes, without the v, from the go.mod of a module.
func pinnedVersion(module string) (string, error) {
	mod, err := os.ReadFile(filepath.Join(module, "go.mod")) // #nosec G304 -- a module of the repository
	if err != nil {
		return "", fmt.Errorf("read which version of Kubernetes is pinned: %w", err)
	}
	for line := range strings.Lines(string(mod)) {
		words := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(words) >= 2 && words[0] == kubernetes {
			return strings.TrimPrefix(words[1], "v"), nil
		}
	}
	return "", fmt.Errorf("%s/go.mod does not require %s", module, kubernetes)
}

// provide makes sure that tools that a module pins are in bin, and builds what is missing or
// was built from another recipe.
func provide(ctx context.Context, log func(string), module, bin string, tools []tool) error {
	want, err := recipeHash(module)
	if err != nil {
		return err
	}
	if len(stale(bin, want, tools)) == 0 {
		return nil
	}
	if err := os.MkdirAll(bin, 0o750); err != nil {
		return fmt.Errorf("make the folder for binaries: %w", err)
	}
	lock, err := filelock.Wait(ctx, filepath.Join(bin, ".lock"), func() {
		log("waiting for another process that builds the control plane")
	})
	if err != nil {
		return err
	}
	defer lock.Unlock()
	// What another process built while this one waited needs no second build.
	for _, t := range stale(bin, want, tools) {
		if err := build(ctx, log, module, bin, t); err != nil {
			return err
		}
		if err := os.WriteFile(stampFile(bin, t), []byte(want), 0o600); err != nil {
			return fmt.Errorf("remember what %s was built from: %w", t.name, err)
		}
	}
	return nil
}

// RepoRoot walks up from the working directory to the go.mod of this repository's module.
func RepoRoot() (string, error) {
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

// stale returns those of the tools whose binary is missing or was not built from the recipe want.
func stale(bin, want string, tools []tool) []tool {
	var out []tool
	for _, t := range tools {
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
	sources, err := filepath.Glob(filepath.Join(module, "*.go"))
	if err != nil {
		return "", fmt.Errorf("look for the tools module's own sources: %w", err)
	}
	for _, path := range append([]string{filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")}, sources...) {
		b, err := os.ReadFile(path) // #nosec G304 -- a file of the repository
		if err != nil {
			return "", fmt.Errorf("read the tools module: %w", err)
		}
		_, _ = fmt.Fprintf(h, "%s %d\n%s", filepath.Base(path), len(b), b)
	}
	_, _ = fmt.Fprintf(h, "%q", buildFlags("v0.0.0", ""))
	return hex.EncodeToString(h.Sum(nil)), nil
}
