package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

const (
	// tracingConfig makes kube-apiserver record every request
	// (https://kubernetes.io/docs/reference/config-api/apiserver-config.v1).
	tracingConfig = `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"TracingConfiguration","endpoint":%q,"samplingRatePerMillion":1000000}`
)

// jaeger is a Jaeger that keeps spans in memory.
type jaeger struct {
	process    *process
	ports      []*port
	query      string // host:port of its pages and its query API
	otlp       string // host:port of OTLP over gRPC
	configFile string // for kube-apiserver
}

// startJaeger starts Jaeger on free ports of loopback; its files are in dir.
func startJaeger(ctx context.Context, dir string, log func(string)) (_ *jaeger, err error) {
	binary, err := binaries.Tool(ctx, log, "jaeger")
	if err != nil {
		return nil, err
	}
	j := &jaeger{configFile: filepath.Join(dir, "tracing.json")}
	defer func() {
		if err != nil {
			j.stop()
		}
	}()
	// Each of its doors gets a port, those as well that nobody uses: the usual numbers may be
	// taken.
	doors := []string{
		"query.http-server.host-port", "collector.otlp.grpc.host-port", "collector.otlp.http.host-port",
		"query.grpc-server.host-port", "admin.http.host-port", "collector.http-server.host-port",
		"collector.grpc-server.host-port", "http-server.host-port", "processor.jaeger-compact.server-host-port",
		"processor.jaeger-binary.server-host-port", "processor.zipkin-compact.server-host-port",
	}
	var args []string
	for _, door := range doors {
		p, err := reservePort()
		if err != nil {
			return nil, err
		}
		j.ports = append(j.ports, p)
		args = append(args, "--"+door+"="+p.address())
	}
	j.query, j.otlp = j.ports[0].address(), j.ports[1].address()
	if err := os.WriteFile(j.configFile, fmt.Appendf(nil, tracingConfig, j.otlp), 0o600); err != nil {
		return nil, fmt.Errorf("write kube-apiserver's tracing configuration: %w", err)
	}
	log("starting Jaeger")
	if j.process, err = startProcess(dir, "jaeger", binary, args); err != nil {
		return nil, err
	}
	return j, j.process.await(ctx, "Jaeger to be ready", func(ctx context.Context) error {
		_, err := send(ctx, http.DefaultClient, http.MethodGet, "http://"+j.ports[4].address()+"/", nil)
		return err
	})
}

// stop ends it. It may be nil.
func (j *jaeger) stop() {
	if j == nil {
		return
	}
	j.process.kill()
	for _, p := range j.ports {
		p.release()
	}
}

// JaegerURL is where Jaeger's pages and its query API are, empty without [Options].Jaeger.
func (cp *ControlPlane) JaegerURL() string {
	if cp.jaeger == nil {
		return ""
	}
	return "http://" + cp.jaeger.query
}

// OTLPEndpoint is where a process can send its spans by OTLP over gRPC: what
// OTEL_EXPORTER_OTLP_ENDPOINT takes. It is empty without [Options].Jaeger.
func (cp *ControlPlane) OTLPEndpoint() string {
	if cp.jaeger == nil {
		return ""
	}
	return "http://" + cp.jaeger.otlp
}

// AwaitTrace asks Jaeger for a trace until done says so of it. The trace is as the query API has
// it; Jaeger gets spans some seconds after they have ended.
func (cp *ControlPlane) AwaitTrace(ctx context.Context, id string, done func(trace []byte) bool) error {
	return cp.awaitJaeger(ctx, "/api/traces/"+id, done)
}

// AwaitTraces is [ControlPlane.AwaitTrace] for the latest traces with a span of a service and a
// name.
func (cp *ControlPlane) AwaitTraces(ctx context.Context, service, name string, done func(traces []byte) bool) error {
	query := url.Values{"service": {service}, "operation": {name}, "limit": {"100"}, "lookback": {"1h"}}
	return cp.awaitJaeger(ctx, "/api/traces?"+query.Encode(), done)
}

func (cp *ControlPlane) awaitJaeger(ctx context.Context, target string, done func([]byte) bool) error {
	if cp.jaeger == nil {
		return errors.New("there is no Jaeger")
	}
	errIncomplete := errors.New("it is not complete yet")
	return cp.jaeger.process.await(ctx, "what Jaeger says at "+target, func(ctx context.Context) error {
		body, err := fetch(ctx, cp.JaegerURL()+target)
		if err == nil && !done(body) {
			err = errIncomplete
		}
		return err
	})
}

// fetch reads an answer of Jaeger, whatever its size.
func fetch(ctx context.Context, target string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = &statusError{res.StatusCode, body}
	}
	return body, err
}
