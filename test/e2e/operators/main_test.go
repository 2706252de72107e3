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
	// atOnce is how many tests run at the same time: more than there are CPUs, for they wait.
	atOnce = 8

	// everything is a policy that writes one event for every request, without bodies.
	everything = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}`
)

// What all tests share.
var (
	cp *controlplane.ControlPlane
	// direct asks kube-apiserver as the admin.
	direct *ask.Client
	// upstreamLog is the audit log of the API server.
	upstreamLog string
	// paged is a listproxy whose pages are read.
	paged *harness.Proxy
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{Parallel: atOnce, SetUp: func(s *harness.Suite) error {
		dir, err := s.Dir()
		if err != nil {
			return err
		}
		policyFile := filepath.Join(dir, "policy.json")
		if err := os.WriteFile(policyFile, []byte(everything), 0o600); err != nil {
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
		paged, err = s.Proxy(harness.ProxyOptions{
			Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{"--eager", "namespaces", "--log-level", "access"},
		})
		return err
	}})
}
