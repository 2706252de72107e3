package programs

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/expect"
)

// TestControllerRuntime: the tests of controller-runtime's client, cache and manager pass through listproxy if they pass at
// kube-apiserver.
func TestControllerRuntime(t *testing.T) {
	for part, minPassed := range map[string]int{"client": 300, "cache": 270, "manager": 100} {
		t.Run(part, func(t *testing.T) {
			name, pkg := binaries.ControllerRuntimeTests(part)
			root, err := binaries.RepoRoot()
			expect.NoError(t, err)
			find := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", pkg) // #nosec G204 -- one of three packages
			find.Dir = filepath.Join(root, filepath.FromSlash(binaries.ControllerRuntimeModule))
			dir, err := find.Output()
			expect.NoError(t, err)
			compare(t, suite{
				binary: name, dir: strings.TrimSpace(string(dir)), env: []string{"USE_EXISTING_CLUSTER=true"},
				mayMissMemory: part == "manager", onlyStreams: part != "client",
			}, minPassed)
		})
	}
}

// kubernetesTests selects Kubernetes' end-to-end tests of lists, watches, definitions and other features of kube-apiserver
// that need neither nodes nor a controller manager.
var kubernetesTests = strings.Join([]string{
	"API chunking", "Table transformation", "Watchers", "API Streaming", "WatchList", "CustomResourceDefinition Watch",
	"CustomResourceDefinition resources", "ServerSideApply", "Discovery", "FieldValidation", "Generated clientset.*cronjobs",
	"server version", "client-go should negotiate", "CustomResourceValidationRules", "OpenAPI V3 for (all|Custom)", "Server request timeout",
	"health handlers", "should support .* API operations", "manage the lifecycle of a ResourceQuota",
}, "|")

// TestKubernetes: kubernetesTests pass through listproxy if they pass at kube-apiserver.
func TestKubernetes(t *testing.T) {
	const minPassed = 60
	compare(t, suite{
		binary: binaries.KubernetesTests,
		// A test waits until a continue token is too old.
		serverArgs: []string{"--etcd-compaction-interval=20s"}, proxyArgs: []string{"--history-window=30s"},
		args: []string{
			// No controller creates service accounts or empties namespaces.
			"-provider=skeleton", "-e2e-verify-service-account=false", "-delete-namespace=false", "-dump-logs-on-failure=false",
			"-ginkgo.focus=" + kubernetesTests,
		},
	}, minPassed)
}
