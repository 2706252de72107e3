// Package binaries builds the programs that a control plane and its tests run: etcd, kube-apiserver, kubectl,
// and on demand other kube-apiservers, helm, promtool, and the tests of other projects. A module of its own pins each.
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
	"slices"
	"strings"

	"github.com/listproxy/listproxy/test/controlplane/filelock"
)

const (
	modulePath = "github.com/listproxy/listproxy"
	toolsDir   = "test/controlplane/tools"
	// otherTools are the modules beside toolsDir that pin only a kube-apiserver of another version.
	otherTools = toolsDir + "-[0-9]*"
	kubernetes = "k8s.io/kubernetes"
)

// Paths are those of the binaries of the control plane.
type Paths struct {
	Etcd          string
	KubeAPIServer string
	Kubectl       string
}

// A tool is a binary to build.
type tool struct {
	name   string // of the binary
	pkg    string // the main package, or the one with the tests
	module string // the module of pkg, whose version the binary gets
	tags   string // for go build
	test   bool   // the binary has the tests of pkg
	cgo    bool   // go build may use cgo
}

// ControlPlane returns the paths of etcd, kube-apiserver and kubectl, as the module in tools/ pins them, and the version of
// kube-apiserver. A version, as "1.32.13", chooses another kube-apiserver, which a module beside tools/ must pin. The
// binaries are in bin/ of the repository that holds the working directory. ControlPlane builds those that are missing or come
// from another recipe, which takes minutes and is logged. Callers in several processes wait for one build.
func ControlPlane(ctx context.Context, log func(string), version string) (Paths, string, error) {
	root, err := RepoRoot()
	if err != nil {
		return Paths{}, "", err
	}
	module, version, err := findModule(root, version)
	if err != nil {
		return Paths{}, "", err
	}
	name := "kube-apiserver"
	if module != toolsDir {
		name += "-" + version
	}
	bin := filepath.Join(root, "bin")
	err = ensureBuilt(ctx, log, root, toolsDir,
		tool{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", module: "go.etcd.io/etcd/server/v3"},
		tool{name: "kubectl", pkg: kubernetes + "/cmd/kubectl", module: kubernetes})
	if err == nil {
		err = ensureBuilt(ctx, log, root, module, tool{name: name, pkg: kubernetes + "/cmd/kube-apiserver", module: kubernetes})
	}
	paths := Paths{Etcd: filepath.Join(bin, "etcd"), KubeAPIServer: filepath.Join(bin, name), Kubectl: filepath.Join(bin, "kubectl")}
	return paths, version, err
}

// Tests and programs of other projects, for [Tool].
const (
	KubernetesTests = "kubernetes.test"
	ClusterCache    = "argo-cd-cluster-cache"
)

// The directories of modules that pin tools.
const (
	ControllerRuntimeModule = "test/e2e/programs/controller-runtime"

	clusterTools = "test/cluster/tools-" // and the name of a tool
)

// The paths of modules whose programs are built.
const (
	controllerRuntime = "sigs.k8s.io/controller-runtime"
	prometheus        = "github.com/prometheus/prometheus"
	cyclonedx         = "github.com/CycloneDX/cyclonedx-gomod"
	registry          = "github.com/google/go-containerregistry"
	actionlint        = "github.com/rhysd/actionlint"
	kine              = "github.com/k3s-io/kine"

	containerd = "github.com/containerd/containerd/v2"
	runc       = "github.com/opencontainers/runc"
	cniPlugins = "github.com/containernetworking/plugins"
	jaeger     = "github.com/jaegertracing/jaeger"
)

// ControllerRuntimeTests returns the name of the tests of a package of controller-runtime, as
// "client", and the package's path.
func ControllerRuntimeTests(tested string) (name, pkg string) {
	return "controller-runtime-" + tested + ".test", controllerRuntime + "/pkg/" + tested
}

// Tool returns the path in bin/ of a tool for tests, a release or a cluster, or of another project's tests or program, as
// its module pins it. It builds the tool if it is missing there, or was built from another recipe.
func Tool(ctx context.Context, log func(string), name string) (string, error) {
	root, err := RepoRoot()
	if err != nil {
		return "", err
	}
	for dir, tools := range map[string][]tool{
		toolsDir + "-helm": {{name: "helm", pkg: "helm.sh/helm/v4/cmd/helm", module: "helm.sh/helm/v4"}},
		// Without service discovery of clouds, which would be most of the program.
		toolsDir + "-promtool":  {{name: "promtool", pkg: prometheus + "/cmd/promtool", module: prometheus, tags: "remove_all_sd"}},
		toolsDir + "-etcdutl":   {{name: "etcdutl", pkg: "go.etcd.io/etcd/etcdutl/v3", module: "go.etcd.io/etcd/etcdutl/v3"}},
		toolsDir + "-krew":      {{name: "krew", pkg: "sigs.k8s.io/krew/cmd/krew", module: "sigs.k8s.io/krew"}},
		toolsDir + "-kine":      {{name: "kine-0.17.5", pkg: kine, module: kine}},
		toolsDir + "-kine-0.14": {{name: "kine-0.14.12", pkg: kine, module: kine, cgo: true}},
		"test/release/tools": {
			{name: "cyclonedx-gomod", pkg: cyclonedx + "/cmd/cyclonedx-gomod", module: cyclonedx},
			{name: "actionlint", pkg: actionlint + "/cmd/actionlint", module: actionlint},
			{name: "crane", pkg: registry + "/cmd/crane", module: registry},
			{name: "release-image", pkg: ".", module: registry},
		},
		clusterTools + "node": {
			{name: "kubelet", pkg: kubernetes + "/cmd/kubelet", module: kubernetes},
			{name: "kube-proxy", pkg: kubernetes + "/cmd/kube-proxy", module: kubernetes},
			{name: "kube-scheduler", pkg: kubernetes + "/cmd/kube-scheduler", module: kubernetes},
			{name: "kube-controller-manager", pkg: kubernetes + "/cmd/kube-controller-manager", module: kubernetes},
		},
		clusterTools + "containerd": {
			{name: "containerd", pkg: containerd + "/cmd/containerd", module: containerd},
			{name: "containerd-shim-runc-v2", pkg: containerd + "/cmd/containerd-shim-runc-v2", module: containerd},
			{name: "ctr", pkg: containerd + "/cmd/ctr", module: containerd},
		},
		clusterTools + "runc": {{name: "runc", pkg: runc, module: runc, tags: "seccomp", cgo: true}},
		clusterTools + "cni": {
			{name: "bridge", pkg: cniPlugins + "/plugins/main/bridge", module: cniPlugins},
			{name: "host-local", pkg: cniPlugins + "/plugins/ipam/host-local", module: cniPlugins},
		},
		clusterTools + "coredns": {{name: "coredns", pkg: ".", module: "github.com/coredns/coredns"}},
		clusterTools + "prometheus": {{
			name: "prometheus", pkg: prometheus + "/cmd/prometheus", module: prometheus,
			tags: "remove_all_sd,enable_kubernetes_sd",
		}},
		clusterTools + "jaeger":          {{name: "jaeger", pkg: jaeger + "/cmd/jaeger", module: jaeger}},
		"test/e2e/programs/kubernetes":   {{name: KubernetesTests, pkg: ".", module: kubernetes, test: true}},
		"test/e2e/programs/clustercache": {{name: ClusterCache, pkg: ".", module: "github.com/argoproj/argo-cd/gitops-engine"}},
		ControllerRuntimeModule:          {testsOf("client"), testsOf("cache"), testsOf("manager")},
	} {
		if i := slices.IndexFunc(tools, func(t tool) bool { return t.name == name }); i >= 0 {
			return filepath.Join(root, "bin", name), ensureBuilt(ctx, log, root, dir, tools[i])
		}
	}
	return "", fmt.Errorf("no module pins a tool %q", name)
}

func testsOf(tested string) tool {
	name, pkg := ControllerRuntimeTests(tested)
	return tool{name: name, pkg: pkg, module: controllerRuntime, test: true}
}

// pinLine matches the line of a go.mod that pins a version of Kubernetes.
var pinLine = regexp.MustCompile(regexp.QuoteMeta(kubernetes) + ` v(\S+)`)

// findModule returns the directory of the module that pins a version of Kubernetes, and that version. "" is the version that
// toolsDir pins.
func findModule(root, version string) (module, pinned string, err error) {
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
			module, err = filepath.Rel(root, dir)
			return module, pinned, err
		}
		known = append(known, pinned)
	}
	return "", "", fmt.Errorf("no module pins kube-apiserver %s: choose one of %s, or add a module beside %s",
		version, strings.Join(known, ", "), toolsDir)
}

// ensureBuilt builds those tools of a module that are not in bin/, or were built from another recipe.
func ensureBuilt(ctx context.Context, log func(string), root, module string, tools ...tool) error {
	module, bin := filepath.Join(root, module), filepath.Join(root, "bin")
	recipe, err := recipeHash(module)
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
			if err = build(ctx, log, module, bin, t); err == nil {
				err = os.WriteFile(stampFile(bin, t), []byte(recipe), 0o600)
			}
		}
		lock.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// RepoRoot walks up from the working directory to the go.mod of this repository's module.
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

// recipeHash returns a hash of everything that a build depends on: the pinned modules, their sources and the flags.
func recipeHash(module string) (string, error) {
	h := sha256.New()
	sources, err := filepath.Glob(filepath.Join(module, "*.go"))
	if err != nil {
		return "", err
	}
	for _, path := range append([]string{filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")}, sources...) {
		b, err := os.ReadFile(path) // #nosec G304 -- a file of the repository
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(h, "%s %d\n%s", filepath.Base(path), len(b), b)
	}
	_, _ = fmt.Fprintf(h, "%q", buildFlags("v0.0.0", ""))
	return hex.EncodeToString(h.Sum(nil)), nil
}
