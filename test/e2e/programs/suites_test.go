package programs

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/expect"
)

// TestControllerRuntime runs the suites of controller-runtime.
func TestControllerRuntime(t *testing.T) {
	for of, atLeast := range map[string]int{"client": 300, "cache": 270, "manager": 100} {
		t.Run(of, func(t *testing.T) {
			name, pkg := binaries.ControllerRuntimeTests(of)
			root, err := binaries.RepoRoot()
			expect.NoError(t, err)
			find := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", pkg) // #nosec G204 -- one of the above
			find.Dir = filepath.Join(root, filepath.FromSlash(binaries.ControllerRuntimeModule))
			dir, err := find.Output()
			expect.NoError(t, err)
			compare(t, suite{name: name, dir: strings.TrimSpace(string(dir)), env: []string{"USE_EXISTING_CLUSTER=true"}, few: of == "manager", streams: of != "client"}, atLeast)
		})
	}
}

// kubernetesTests are those of Kubernetes' end-to-end tests that are about lists, watches, definitions
// and what else the API server does alone. That of selectable fields needs a webhook in a pod, and
// those of garbage collection need a controller manager. One waits until a continue token is too old.
var kubernetesTests = strings.Join([]string{
	"API chunking", "Table transformation", "Watchers", "API Streaming", "WatchList", "CustomResourceDefinition Watch",
	"CustomResourceDefinition resources", "ServerSideApply", "Discovery", "FieldValidation", "Generated clientset.*cronjobs",
	"server version", "client-go should negotiate", "CustomResourceValidationRules", "OpenAPI V3 for (all|Custom)", "Server request timeout",
	"health handlers", "should support .* API operations", "manage the lifecycle of a ResourceQuota",
}, "|")

// TestKubernetes runs them.
func TestKubernetes(t *testing.T) {
	compare(t, suite{name: binaries.KubernetesTests, server: []string{"--etcd-compaction-interval=20s"}, proxy: []string{"--history-window=30s"}, args: []string{
		// There is nobody who makes service accounts, or empties namespaces.
		"-provider=skeleton", "-e2e-verify-service-account=false", "-delete-namespace=false", "-dump-logs-on-failure=false",
		"-ginkgo.focus=" + kubernetesTests,
	}}, 60)
}
