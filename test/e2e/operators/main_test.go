package operators

import (
	"errors"
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
	// traced is a listproxy that exports traces, and paged one whose pages are looked at.
	traced, paged *harness.Proxy
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
		cp, err = s.ControlPlane(controlplane.Options{
			Jaeger:        true,
			APIServerArgs: []string{"--audit-log-path=" + upstreamLog, "--audit-policy-file=" + policyFile},
		})
		if err != nil {
			return err
		}
		if direct, err = ask.New(cp.RESTConfig(controlplane.Admin), patience); err != nil {
			return err
		}
		own := cp.RESTConfig(controlplane.Feed)
		paged, err = s.Proxy(harness.ProxyOptions{
			Upstream: own, Args: []string{"--eager", "namespaces", "--log-level", "access"},
		})
		if err != nil {
			return err
		}
		return traces(func() (err error) {
			traced, err = s.Proxy(harness.ProxyOptions{Upstream: own, Args: []string{"--eager", "pods"}})
			return err
		})
	}})
}

// traces has the processes that start begins export traces, and nobody else.
func traces(start func() error) (err error) {
	for name, value := range map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": cp.OTLPEndpoint(), "OTEL_BSP_SCHEDULE_DELAY": "200"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.Unsetenv(name)) }()
	}
	return start()
}
