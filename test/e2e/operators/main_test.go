package operators

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
)

const (
	// patience ends a wait for something that must come; no test passes because of it.
	patience = time.Minute
	// parallelTests is more than there are CPUs, since tests wait.
	parallelTests = 8

	// auditEverything is an audit policy that logs the metadata of every request.
	auditEverything = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}`
)

// What all tests share.
var (
	cp *controlplane.ControlPlane
	// direct asks kube-apiserver itself, as the admin.
	direct *ask.Client
	// upstreamLog is the path of kube-apiserver's audit log.
	upstreamLog string
	// statusProxy is the listproxy of TestStatus.
	statusProxy *harness.Proxy
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{Parallel: parallelTests, SetUp: func(s *harness.Suite) error {
		dir, err := s.Dir()
		if err != nil {
			return err
		}
		policyFile := filepath.Join(dir, "policy.json")
		if err := os.WriteFile(policyFile, []byte(auditEverything), 0o600); err != nil {
			return err
		}
		upstreamLog = filepath.Join(dir, "audit.log")
		cp, err = s.ControlPlane(controlplane.Options{APIServerArgs: []string{
			"--audit-log-path=" + upstreamLog, "--audit-policy-file=" + policyFile,
		}})
		if err != nil {
			return err
		}
		if direct, err = ask.New(cp.RESTConfig(controlplane.Admin), patience); err != nil {
			return err
		}
		statusProxy, err = s.Proxy(harness.ProxyOptions{
			Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{"--eager", "namespaces", "--log-level", "access"},
		})
		return err
	}})
}
