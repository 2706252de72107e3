package main

import (
	"crypto/tls"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
)

// parse returns the options of a command line, or the error with which it is refused.
func parse(args ...string) (*options, error) {
	o := &options{}
	fs := pflag.NewFlagSet("listproxy", pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	return o, o.Validate()
}

// TestEager: --eager names collections, each with a representation (json if none is named). They keep their order.
func TestEager(t *testing.T) {
	o, err := parse("--eager", "pods/protobuf,pods",
		"--eager", "deployments.v1.apps/metadata-json,widgets.v1beta1.example.com")
	expect.NoError(t, err)
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "widgets"}
	expect.Same(t, []proxy.EagerCollection{
		{GroupVersionResource: pods, Representation: media.Protobuf},
		{GroupVersionResource: pods, Representation: media.JSON},
		{GroupVersionResource: deployments, Representation: media.MetadataJSON},
		{GroupVersionResource: widgets, Representation: media.JSON},
	}, o.cache.eagerCollections)
}

// TestFlagsThatNameFiles: --client-ca-file turns on client certificates, --audit-log-path the audit log, and --config sets the
// policy.
func TestFlagsThatNameFiles(t *testing.T) {
	ca, _, err := serve.SelfSigned(t.TempDir(), nil)
	expect.NoError(t, err)
	config := policyFile(t, "resources:\n- {group: '', resource: pods, historyWindow: 1m}\n")
	o, err := parse("--client-ca-file", ca, "--audit-log-path", "-", "--config", config)
	expect.NoError(t, err)
	if o.callers.clientCA == nil {
		t.Error("client certificates are not accepted with --client-ca-file")
	}
	expect.Same(t, "-", o.audit.config.Path)
	expect.Same(t, time.Minute, o.cache.policy.RuleFor("", "pods").HistoryWindow)
}

// TestMinTLSVersion: --tls-min-version has the names of kube-apiserver's flag.
func TestMinTLSVersion(t *testing.T) {
	for name, want := range map[string]uint16{"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13} {
		o, err := parse("--tls-min-version", name)
		expect.NoError(t, err)
		expect.Same(t, want, o.serving.minVersion)
	}
}

// TestSelfSignedHosts: a self-signed certificate names --bind-address, unless it stands for all addresses.
func TestSelfSignedHosts(t *testing.T) {
	const name = "api.example.com"
	for address, want := range map[string][]string{
		"0.0.0.0":  {name},
		"::":       {name},
		"10.1.2.3": {name, "10.1.2.3"},
		"fd00::1":  {name, "fd00::1"},
	} {
		o, err := parse("--bind-address", address)
		expect.NoError(t, err)
		expect.Same(t, want, o.serving.selfSignedHosts([]string{name}))
	}
}

// TestWrongOptions: a flag with a value that cannot be right is refused. The error names the flag, and says what is right.
func TestWrongOptions(t *testing.T) {
	noPEM := filepath.Join(t.TempDir(), "no.pem")
	expect.NoError(t, os.WriteFile(noPEM, []byte("not a certificate"), 0o600))
	neverNodes := policyFile(t, "resources:\n- {group: '', resource: nodes, cache: never}\n")
	unknownField := policyFile(t, "x: y\n")
	singularNames := policyFile(t, "resources:\n- {group: '', resource: pod}\n"+
		"- {group: apps, resource: deployment, cache: never}\n")
	for _, tt := range []struct {
		args     string // divided by spaces
		wantSays []string
	}{
		// Times.
		{args: "--history-window 0s", wantSays: []string{"--history-window 0s", "at least 1s"}},
		{args: "--review-ttl -1s", wantSays: []string{"--review-ttl -1s"}},
		{args: "--self-check-interval 10ms", wantSays: []string{"--self-check-interval 10ms", "or 0"}},
		{args: "--shutdown-delay-duration -1s", wantSays: []string{"--shutdown-delay-duration", "too short"}},
		{args: "--staleness-bound 1s", wantSays: []string{"--staleness-bound 1s", "at least"}},

		// Numbers and choices.
		{args: "--cache-bytes 32Ki", wantSays: []string{"--cache-bytes 32Ki is less", "at least 64Ki"}},
		{args: "--cache-bytes much", wantSays: []string{"--cache-bytes", "quantities must match"}},
		{args: "--consistent-lists=maybe", wantSays: []string{`--consistent-lists "maybe"`, "true, always or false"}},
		{args: "--goaway-chance 0.03", wantSays: []string{"--goaway-chance 0.03", "from 0 (never) to 0.02"}},
		{args: "--log-format xml", wantSays: []string{"--log-format", "text or json"}},
		{args: "--log-level loud", wantSays: []string{"--log-level", "debug, access, info, warn or error"}},
		{args: "--tls-min-version VersionTLS11", wantSays: []string{"--tls-min-version", "VersionTLS12 or VersionTLS13"}},

		// Addresses and ports. An empty address would be all interfaces.
		{args: "--admin-bind-address 8081", wantSays: []string{"--admin-bind-address", "address:port"}},
		{args: "--admin-bind-address=", wantSays: []string{"--admin-bind-address", "address:port"}},
		{args: "--bind-address 127.0.0.1:9443", wantSays: []string{"--bind-address", "failed to parse IP"}},
		{args: "--connect-hosts a", wantSays: []string{"--connect-hosts", "give --connect-port"}},
		{args: "--secure-port 70000", wantSays: []string{"--secure-port", "out of range"}},

		// Files.
		{args: "--client-ca-file " + noPEM, wantSays: []string{"--client-ca-file", noPEM, "PEM"}},
		{args: "--config no-such-file", wantSays: []string{"--config", "no such file"}},
		{args: "--config " + unknownField, wantSays: []string{"--config", `policy.yaml: unknown field "x"`}},
		{
			args: "--config " + singularNames,
			wantSays: []string{
				"--config",
				singularNames + `: resources[0].resource: Invalid value: "pod": not a plural name: write "pods"`,
				singularNames + ": resources[1].resource",
				`write "deployments"`,
			},
		},
		{args: "--tls-cert-file x", wantSays: []string{"--tls-private-key-file", "both or none"}},

		// Eager collections.
		{args: "--eager /json", wantSays: []string{"--eager", "names no resource"}},
		{args: "--eager pod", wantSays: []string{"--eager", `"pod" is not a plural name: write "pods"`}},
		{args: "--eager pods,pods/json", wantSays: []string{"--eager", `"pods/json" is named twice`}},
		{args: "--eager pods/yaml", wantSays: []string{"--eager", `"pods/yaml"`, "choose among [json protobuf"}},
		{args: "--eager pods.v1", wantSays: []string{"--eager", "pods.v1", "deployments.v1.apps"}},
		{args: "--eager deployments.apps", wantSays: []string{`"deployments.apps" is not resource.version.group`}},
		{args: "--eager ingresses.networking.k8s.io", wantSays: []string{"is not resource.version.group"}},
		{args: "--eager secrets", wantSays: []string{"--eager", "secrets", "never"}},
		{
			args:     "--eager nodes --config " + neverNodes,
			wantSays: []string{"--eager", `"nodes" is never kept`, "cache: never in --config"},
		},
	} {
		t.Run(tt.args, func(t *testing.T) {
			_, err := parse(strings.Fields(tt.args)...)
			clitest.Refused(t, err, tt.wantSays...)
		})
	}
}

// TestWrongConnectHosts: --connect-hosts refuses an entry that is neither host nor host:port.
func TestWrongConnectHosts(t *testing.T) {
	o, err := parse("--connect-port", "0", "--connect-hosts", "https://a")
	expect.NoError(t, err)
	_, err = o.connect.targets(&url.URL{Host: "localhost"})
	clitest.Refused(t, err, "--connect-hosts", `"https://a"`, "host:port")
}

// TestPluralNames: --eager accepts the plural names of built-in resources, and any name of another resource.
func TestPluralNames(t *testing.T) {
	for _, name := range []string{
		"pods", "endpoints", "nodes", "networkpolicies.v1.networking.k8s.io", "ingresses.v1.networking.k8s.io",
		"csinodes.v1.storage.k8s.io", "storageclasses.v1.storage.k8s.io", "priorityclasses.v1.scheduling.k8s.io",
		"customresourcedefinitions.v1.apiextensions.k8s.io",
		// Not built in, or not yet.
		"widget.v1.example.com", "gateways.v1.networking.k8s.io", "resourceslices.v9.batch", "widgets.stable.example.com",
	} {
		if _, err := parse("--eager", name); err != nil {
			t.Errorf("--eager %s is refused: %v", name, err)
		}
	}
}

const (
	kibibyte = 1 << 10
	mebibyte = 1 << 20
	gibibyte = 1 << 30
)

// TestMemoryLimit: the memory limit follows from --cache-bytes. For 2 GiB it is (2 + 0.25 for compressed lists) × 1.5 + 0.5 GiB
// (otherMemory), which is 3.9 GiB. Without a bound there is no limit.
func TestMemoryLimit(t *testing.T) {
	for cacheBytes, want := range map[int64]struct{ min, max int64 }{
		0:             {min: noMemoryLimit, max: noMemoryLimit},
		math.MaxInt64: {min: noMemoryLimit, max: noMemoryLimit},        // the limit itself would overflow
		64 * kibibyte: {min: otherMemory, max: otherMemory + mebibyte}, // the smallest --cache-bytes
		2 * gibibyte:  {min: 3 * gibibyte, max: 4 * gibibyte},
		16 * gibibyte: {min: 27 * gibibyte, max: 28 * gibibyte},
	} {
		if got := memoryLimit(cacheBytes); got < want.min || got > want.max {
			t.Errorf("memoryLimit(%d): got %d, want %d to %d", cacheBytes, got, want.min, want.max)
		}
	}
}

// TestCompressedBound: compressed lists may take an eighth of --cache-bytes, or 256 MiB if that is 0.
func TestCompressedBound(t *testing.T) {
	const noBound = 0
	for stored, want := range map[int64]int64{
		noBound:       256 * mebibyte,
		64 * kibibyte: 8 * kibibyte,
		2 * gibibyte:  256 * mebibyte,
	} {
		expect.Same(t, want, compressedBound(stored))
	}
}

// TestConnectionBound: clients may have one connection for each MiB of the memory limit, from 256 to 20,000.
func TestConnectionBound(t *testing.T) {
	for limit, want := range map[int64]int{
		0:              256,
		24 * mebibyte:  256,
		921 * mebibyte: 921,
		4 * gibibyte:   4096,
		64 * gibibyte:  20_000,
		noMemoryLimit:  20_000,
	} {
		expect.Same(t, want, connectionBound(limit))
	}
}

// TestWrongKubeconfigs: the error about a kubeconfig that cannot be read, or has no server, names the file.
func TestWrongKubeconfigs(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	malformed := filepath.Join(dir, "malformed")
	empty := filepath.Join(dir, "empty")
	expect.NoError(t, os.WriteFile(malformed, []byte("x: ["), 0o600))
	expect.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, file := range []string{missing, malformed, empty} {
		_, err := (&upstreamOptions{kubeconfig: file}).clientConfig()
		clitest.Refused(t, err, "--kubeconfig "+file)
	}
}

// TestForbidPrompts: the exec plugin of listproxy's own account cannot read from standard input.
func TestForbidPrompts(t *testing.T) {
	cfg := &rest.Config{ExecProvider: &api.ExecConfig{InteractiveMode: api.IfAvailableExecInteractiveMode}}
	forbidPrompts(cfg)
	if !cfg.ExecProvider.StdinUnavailable {
		t.Error("StdinUnavailable is false, want true")
	}
}

// TestSetPingEnv: setPingEnv sets a timeout to 5 s that the environment does not have, and keeps one that it has.
func TestSetPingEnv(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "7")
	setPingEnv()
	expect.Same(t, "5", os.Getenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS"))
	expect.Same(t, "7", os.Getenv("HTTP2_PING_TIMEOUT_SECONDS"))
}

// TestFlagsInForce: flagsInForce (/flagz) returns the values of all flags, defaults included.
func TestFlagsInForce(t *testing.T) {
	o, err := parse("--secure-port", "1234", "--eager", "pods,nodes")
	expect.NoError(t, err)
	flags := o.flagsInForce()
	for _, want := range []string{"secure-port=1234", "eager=[pods,nodes]", "history-window=2m30s", "watches=false"} {
		if !slices.Contains(flags, want) {
			t.Errorf("got the flags %q, want %s among them", flags, want)
		}
	}
}
