package binaries

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// Tests and programs of other projects, for [Tool].
const (
	KubernetesTests = "kubernetes.test"
	ClusterCache    = "argo-cd-cluster-cache"
)

// The directories of modules that pin tools.
const (
	ControllerRuntimeModule = "test/e2e/programs/controller-runtime"

	clusterTools = "test/cluster/tools-" // the beginning of several directories, such as test/cluster/tools-runc
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

// ControllerRuntimeTests returns the name, for [Tool], of the tests of a package of controller-runtime, such as "client". It
// also returns the package's path.
func ControllerRuntimeTests(tested string) (name, pkg string) {
	return "controller-runtime-" + tested + ".test", controllerRuntime + "/pkg/" + tested
}

// pinnedTools are the tools that [Tool] builds, by the directory of the module that pins them. The package "." is in that
// directory itself.
var pinnedTools = map[string][]tool{
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
}

// Tool returns the path in bin/ of the tool with a name, one of pinnedTools. It builds the tool if it is missing there, or was
// built from another recipe: from other versions, other sources or with other flags.
func Tool(ctx context.Context, log func(string), name string) (string, error) {
	root, err := RepoRoot()
	if err != nil {
		return "", err
	}
	for dir, tools := range pinnedTools {
		i := slices.IndexFunc(tools, func(t tool) bool { return t.name == name })
		if i >= 0 {
			return filepath.Join(root, "bin", name), ensureBuilt(ctx, log, root, dir, tools[i])
		}
	}
	return "", fmt.Errorf("no module pins a tool %q", name)
}

// testsOf returns the tool with the tests of a package of controller-runtime.
func testsOf(tested string) tool {
	name, pkg := ControllerRuntimeTests(tested)
	return tool{name: name, pkg: pkg, module: controllerRuntime, test: true}
}
