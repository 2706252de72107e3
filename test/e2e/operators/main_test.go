package operators

import (
	"errors"
	"fmt"
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
	// tracingConfig makes kube-apiserver send the spans of every request
	// (https://kubernetes.io/docs/reference/config-api/apiserver-config.v1).
	tracingConfig = `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"TracingConfiguration","endpoint":%q,"samplingRatePerMillion":1000000}`
)

// What all tests share.
var (
	cp *controlplane.ControlPlane
	// direct asks kube-apiserver as the admin.
	direct *ask.Client
	// upstreamLog is the audit log of the API server.
	upstreamLog string
	// collected are the spans of kube-apiserver and of traced.
	collected *collector
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
		if collected, err = startCollector(); err != nil {
			return err
		}
		tracing := filepath.Join(dir, "tracing.json")
		if err := os.WriteFile(tracing, fmt.Appendf(nil, tracingConfig, collected.address), 0o600); err != nil {
			return err
		}
		cp, err = s.ControlPlane(controlplane.Options{APIServerArgs: []string{
			"--audit-log-path=" + upstreamLog, "--audit-policy-file=" + policyFile, "--tracing-config-file=" + tracing,
		}})
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
	for name, value := range map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + collected.address, "OTEL_BSP_SCHEDULE_DELAY": "200"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.Unsetenv(name)) }()
	}
	return start()
}
