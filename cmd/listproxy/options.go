package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/listproxy/listproxy/cmd/listproxy/cli"
	"github.com/listproxy/listproxy/cmd/listproxy/policyfile"
	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/proxy/audit"
	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/discovery"
	"github.com/listproxy/listproxy/proxy/server"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/telemetry"
)

// options are the command line, as given and then as understood.
type options struct {
	flags    *pflag.FlagSet // to tell what was given
	sections cliflag.NamedFlagSets

	kubeconfig       string
	upstreams        []string
	config           string
	bindAddress      string
	securePort       int
	certFile         string
	keyFile          string
	certDir          string
	certHosts        []string
	tlsMinVersion    string
	tlsCipherSuites  []string
	connectPort      int
	connectPlain     bool
	connectHosts     []string
	connectCAFile    string
	connectCAKeyFile string
	adminBindAddress string
	admin            adminOptions
	delay            time.Duration
	drain            time.Duration
	identity         identityOptions
	limits           limitOptions
	audit            audit.Config

	history   time.Duration
	staleness time.Duration
	wait      time.Duration
	// consistent says which lists of the newest state are answered from memory, and consistentWait how
	// long they wait for the proof.
	consistent     string
	consistentWait time.Duration
	// watches: watches and streaming lists are answered from memory.
	watches   bool
	reviewTTL time.Duration
	idle      time.Duration

	quarantine time.Duration
	settle     time.Duration
	selfCheck  time.Duration
	bytes      string
	compressed string
	eager      []string
	jitter     time.Duration

	logFormat string
	logLevel  string
	profiling bool

	// What complete makes of them.
	tls                        server.TLS
	upstreamAddresses          []string
	byteBound, compressedBound int64
	policy                     *policy.Config
	// eagerly is what --eager and the policy name together.
	eagerly []policy.EagerCollection
	level   slog.Level
}

// maxConsistentWait is longer than any proof takes that still comes.
const maxConsistentWait = time.Minute

func defaultOptions() *options {
	return &options{
		bindAddress:      "0.0.0.0",
		securePort:       8443,
		certDir:          certs.DefaultDir(),
		tlsMinVersion:    "VersionTLS12",
		connectPort:      -1,
		adminBindAddress: "127.0.0.1:8081",
		drain:            time.Minute, // kube-apiserver's --request-timeout
		identity:         defaultIdentityOptions(),
		limits:           defaultLimitOptions(),
		history:          150 * time.Second,
		staleness:        90 * time.Second,
		wait:             100 * time.Millisecond,
		consistent:       string(policy.ConsistentNever),
		consistentWait:   1500 * time.Millisecond,
		reviewTTL:        10 * time.Second,
		idle:             15 * time.Minute,
		quarantine:       2 * time.Minute,
		settle:           defaultSettle,
		selfCheck:        5 * time.Minute,
		bytes:            "2Gi",
		compressed:       "256Mi",
		jitter:           2 * time.Second,
		logFormat:        "text",
		logLevel:         "info",
	}
}

// addFlags adds the flags of listproxy, in the sections and the order that help and
// docs/operations.md have: the few that matter most come first.
func (o *options) addFlags(all *pflag.FlagSet) {
	section := func(name string) *pflag.FlagSet {
		fs := o.sections.FlagSet(name)
		fs.SortFlags = false
		return fs
	}
	fs := section("main")
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"`file` with the API server's address and listproxy's own credentials;\nwithout it, the in-cluster configuration")
	fs.StringVar(&o.config, "config", o.config, "policy `file`: which resources are kept in memory, and how (listproxy policy check FILE)")
	fs.StringSliceVar(&o.eager, "eager", o.eager, "`resources` to load before /readyz says yes: pods,nodes,deployments.v1.apps")
	fs.StringVar(&o.bytes, "cache-bytes", o.bytes, "bound on what is stored (`quantity`, 512Mi or 2Gi; 0 for none): at the bound,\n"+
		"history is shortened, then idle resources are dropped, then lists are forwarded")
	cli.AddConsistentLists(fs, &o.consistent, "answer lists that name no resourceVersion from memory too, once it is proven that memory "+
		"holds\neverything written before the list came. true: where that is faster than kube-apiserver; always: all;\n"+
		"false: none. The policy can say otherwise for a resource")
	fs.BoolVar(&o.watches, "watches", o.watches, "answer watches and streaming lists from memory too: one watch of kube-apiserver for any "+
		"number of clients;\nthe policy can say otherwise for a resource")
	fs.StringVar(&o.logLevel, "log-level", o.logLevel, "`level`: debug, access (a line for every request), info, warn or error")
	fs = section("serving")
	fs.StringVar(&o.bindAddress, "bind-address", o.bindAddress, "`address` to serve clients on")
	fs.IntVar(&o.securePort, "secure-port", o.securePort, "`port` to serve clients on, over TLS")
	fs.StringVar(&o.certFile, "tls-cert-file", o.certFile, "`file` with the serving certificate, PEM; made in --cert-dir if not given")
	fs.StringVar(&o.keyFile, "tls-private-key-file", o.keyFile, "`file` with its key, PEM")
	fs.StringVar(&o.certDir, "cert-dir", o.certDir,
		"`directory` for the certificate that listproxy makes if none is given, and its CA (ca.crt)")
	fs.StringSliceVar(&o.certHosts, "cert-hosts", o.certHosts, "more `names` or addresses for the certificate that listproxy makes")
	fs.StringVar(&o.tlsMinVersion, "tls-min-version", o.tlsMinVersion, "lowest `version` of TLS: "+strings.Join(tlsVersions(), " or "))
	fs.StringSliceVar(&o.tlsCipherSuites, "tls-cipher-suites", o.tlsCipherSuites,
		"cipher `suites` of TLS 1.2, with the names that kube-apiserver uses; without it, Go's own choice")
	fs.DurationVar(&o.delay, "shutdown-delay-duration", o.delay,
		"how long listproxy serves as before after SIGTERM, while /readyz already fails, so that load balancers notice")
	fs.DurationVar(&o.drain, "shutdown-timeout", o.drain,
		"how long requests may take to end after SIGTERM and --shutdown-delay-duration; watches are ended at once")
	fs = section("proxy-url")
	fs.IntVar(&o.connectPort, "connect-port", o.connectPort,
		"`port` for clients that have listproxy as their proxy-url (CONNECT); 0 any free one, -1 none")
	fs.BoolVar(&o.connectPlain, "connect-plain-http", o.connectPlain,
		"serve --connect-port without TLS; the connection inside the tunnel always has TLS")
	fs.StringSliceVar(&o.connectHosts, "connect-hosts", o.connectHosts,
		"more `names` under which clients know the API server: host, for port 443, or host:port;\nthe name in --kubeconfig is always known")
	fs.StringVar(&o.connectCAFile, "connect-ca-file", o.connectCAFile,
		"`file` with the CA, PEM, that signs the certificate inside tunnels; made in --cert-dir if not given")
	fs.StringVar(&o.connectCAKeyFile, "connect-ca-key-file", o.connectCAKeyFile, "`file` with its key, PEM")
	fs = section("upstream")
	fs.StringSliceVar(&o.upstreams, "upstream", o.upstreams,
		"`URLs` of the cluster's API servers, https://host:port, used instead of the address in --kubeconfig;\n"+
			"the path, the credentials, and the name for which their certificates must be valid still come from there")
	fs.DurationVar(&o.settle, "upstream-settle", o.settle,
		"how long all lists are forwarded after the API servers behind the upstream changed;\n"+leastSettleUsage())
	fs = section("authentication and authorization")
	o.identity.addFlags(fs)
	fs.DurationVar(&o.reviewTTL, "review-ttl", o.reviewTTL, "how long the API server's yes to a caller's list is remembered; 0 asks each time")
	fs = section("memory")
	fs.StringVar(&o.compressed, "compression-cache-bytes", o.compressed,
		"bound on the compressed lists that are kept (`quantity`); 0 compresses every list again")
	fs.DurationVar(&o.history, "history-window", o.history, "how far back a revision can be asked for")
	fs.DurationVar(&o.staleness, "staleness-bound", o.staleness,
		"how old the newest state may be: an answer contains everything that the API server had this long ago")
	fs.DurationVar(&o.wait, "fresh-wait", o.wait,
		"how long a request waits for a revision that listproxy has not reached, before it is forwarded")
	fs.DurationVar(&o.consistentWait, "consistent-wait", o.consistentWait,
		"how long a list of the newest state waits for the proof (--consistent-lists), before it is forwarded; at most 1m")
	fs.DurationVar(&o.jitter, "eager-jitter", o.jitter, "eager resources begin to load at random moments within this time")
	fs.DurationVar(&o.idle, "idle-timeout", o.idle, "a resource that nobody asked for in this time is dropped from memory; 0 never")
	fs.DurationVar(&o.quarantine, "schema-quarantine", o.quarantine,
		"how long a custom resource's lists are forwarded after its definition changed")
	fs.DurationVar(&o.selfCheck, "self-check-interval", o.selfCheck,
		"how often each resource in memory is compared with the API server; 0 never")
	o.limits.addFlags(section("limit"))
	addAuditFlags(section("auditing"), &o.audit)
	fs = section("admin and log")
	fs.StringVar(&o.adminBindAddress, "admin-bind-address", o.adminBindAddress,
		"`address` of health checks (/livez, /readyz), metrics (/metrics) and\nthe status page (/statusz, /flagz), plain HTTP")
	o.admin.addFlags(fs)
	fs.BoolVar(&o.profiling, "debug-pprof", o.profiling, "serve profiles of the process (/debug/pprof/) on --admin-bind-address")
	fs.StringVar(&o.logFormat, "log-format", o.logFormat, "`text` or json")
	for _, name := range o.sections.Order {
		all.AddFlagSet(o.sections.FlagSets[name])
	}
	o.flags = all
}

// complete checks the options and makes of them what run needs. An error names the flag.
func (o *options) complete() (err error) {
	for _, part := range []func() error{
		o.checkServing, o.checkTimes, o.identity.load, o.limits.complete, o.admin.complete, o.audit.Validate, o.completePolicy,
		byteFlag{"--cache-bytes", o.bytes, &o.byteBound}.parse,
		byteFlag{"--compression-cache-bytes", o.compressed, &o.compressedBound}.parse,
	} {
		if err := part(); err != nil {
			return err
		}
	}
	if o.upstreamAddresses, err = upstream.ParseEndpoints(o.upstreams); err != nil {
		return fmt.Errorf("--upstream: %w", err)
	}
	if o.level, err = telemetry.ParseLevel(o.logLevel); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	if o.logFormat != string(telemetry.FormatText) && o.logFormat != string(telemetry.FormatJSON) {
		return fmt.Errorf("--log-format %q: choose text or json", o.logFormat)
	}
	return nil
}

// checkServing checks what clients connect to, and which certificates they are shown.
func (o *options) checkServing() error {
	if (o.certFile == "") != (o.keyFile == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file go together: give both or none")
	}
	if o.certDir == "" && (o.certFile == "" || o.connectPort >= 0 && o.connectCAFile == "") {
		return errors.New("--cert-dir is not given, and there is no home directory for it: give a directory of " +
			"listproxy's own, or the certificates")
	}
	if o.securePort < 0 || o.securePort > 65535 {
		return fmt.Errorf("--secure-port %d: a port is a number from 0 (any free one) to 65535", o.securePort)
	}
	if err := o.completeTLS(); err != nil {
		return err
	}
	if err := o.checkConnect(); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(o.adminBindAddress); err != nil {
		return fmt.Errorf("--admin-bind-address %q: %w: give address:port", o.adminBindAddress, err)
	}
	return checkBindAddress(o.bindAddress)
}

func (o *options) checkTimes() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
		least time.Duration
	}{
		{"--history-window", o.history, time.Second},
		{"--staleness-bound", o.staleness, 6 * time.Second},
		{"--fresh-wait", o.wait, 0},
		{"--consistent-wait", o.consistentWait, 0},
		{"--review-ttl", o.reviewTTL, 0},
		{"--eager-jitter", o.jitter, 0},
		{"--idle-timeout", o.idle, 0},
		{"--schema-quarantine", o.quarantine, 0},
		{"--shutdown-delay-duration", o.delay, 0},
		{"--shutdown-timeout", o.drain, 0},
	} {
		if d.value < d.least {
			return fmt.Errorf("%s %v is too short: at least %v", d.flag, d.value, d.least)
		}
	}
	if o.consistentWait > maxConsistentWait {
		return fmt.Errorf("--consistent-wait %v is too long: at most %v", o.consistentWait, maxConsistentWait)
	}
	if o.selfCheck != 0 && o.selfCheck < time.Second {
		return fmt.Errorf("--self-check-interval %v is too short: at least 1s, or 0 for no checks", o.selfCheck)
	}
	return o.checkSettle()
}

// completePolicy reads the policy, and adds to it what flags say.
func (o *options) completePolicy() (err error) {
	if err := cli.CheckConsistentLists(o.consistent); err != nil {
		return err
	}
	if o.policy, err = policyfile.ReadFlag(o.flags, o.config); err != nil {
		return err
	}
	o.policy = o.policy.With(policy.Switches{Consistent: policy.ConsistentLists(o.consistent), Watches: o.watches})
	if o.eagerly, err = mergeEager(o.policy, o.eager); err != nil {
		return fmt.Errorf("--eager: %w", err)
	}
	return nil
}

// checkBindAddress says what is wrong with an address to serve clients on.
func checkBindAddress(address string) error {
	if net.ParseIP(address) != nil {
		return nil
	}
	if host, port, err := net.SplitHostPort(address); err == nil && net.ParseIP(host) != nil {
		return fmt.Errorf("--bind-address %q has a port: give --bind-address %s --secure-port %s", address, host, port)
	}
	return fmt.Errorf("--bind-address %q is not an IP address: give one of this machine's, or 0.0.0.0 for all; "+
		"the port goes to --secure-port", address)
}

// byteFlag is a flag with a quantity of bytes.
type byteFlag struct {
	flag, text string
	value      *int64
}

// leastBytes is less than any bound that somebody wants.
const leastBytes = 64 << 10

func (f byteFlag) parse() error {
	quantity, err := resource.ParseQuantity(f.text)
	if err != nil || quantity.Sign() < 0 {
		return fmt.Errorf("%s %q is not a quantity of bytes: write 512Mi or 2Gi, or 0 for no bound", f.flag, f.text)
	}
	*f.value = quantity.Value()
	if *f.value > 0 && *f.value < leastBytes {
		meant := ""
		if strings.Trim(f.text, "0123456789") == "" {
			meant = ": did you mean " + f.text + "Mi?"
		}
		return fmt.Errorf("%s %q is %d bytes, less than any list needs%s Give at least 64Ki, or 0 for no bound", f.flag, f.text, *f.value,
			cmp.Or(meant, "."))
	}
	return nil
}

// parseEager reads resources as kubectl writes them: "pods" of the core group, or
// resource.version.group.
func parseEager(names []string) ([]schema.GroupVersionResource, error) {
	var resources []schema.GroupVersionResource
	for _, name := range names {
		gvr := schema.GroupVersionResource{Version: "v1", Resource: name}
		if strings.Contains(name, ".") {
			parsed, _ := schema.ParseResourceArg(name)
			if parsed == nil {
				return nil, fmt.Errorf("%q: write resource.version.group, like deployments.v1.apps, or only the resource for the core group", name)
			}
			gvr = *parsed
		}
		if gvr.Resource == "" {
			return nil, fmt.Errorf("%q names no resource", name)
		}
		if meant := policyfile.Meant(gvr.Group, gvr.Resource); meant != "" {
			return nil, fmt.Errorf("%q: Kubernetes has no %q here: did you mean %q? Resources have their plural names", name, gvr.Resource, meant)
		}
		resources = append(resources, gvr)
	}
	return resources, nil
}

// mergeEager adds what --eager names, in JSON, to what the policy does.
func mergeEager(c *policy.Config, names []string) ([]policy.EagerCollection, error) {
	resources, err := parseEager(names)
	if err != nil {
		return nil, err
	}
	eager := c.Eager()
	for i, gvr := range resources {
		switch rule := c.For(gvr.Group, gvr.Version, gvr.Resource); {
		case rule.Cache == policy.CacheNever:
			return nil, fmt.Errorf("%q is never kept in memory, says the policy (%s): leave it out here, or have it kept there", names[i],
				rule.Source)
		case !rule.Keeps(media.JSON):
			return nil, fmt.Errorf("%q is not kept as JSON, says the policy (%s): leave it out here, and write cache: eager there", names[i],
				rule.Source)
		}
		e := policy.EagerCollection{Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Representation: media.JSON}
		if !slices.Contains(eager, e) {
			eager = append(eager, e)
		}
	}
	return eager, nil
}

// defaultSettle is the --upstream-settle where none is given.
const defaultSettle = 15 * time.Second

// anySettle lets --upstream-settle be shorter than is safe, if it is not empty. The linker sets it
// in the binaries that tests run (package test/harness), so that they need not wait for long after
// a change of API servers: -ldflags "-X main.anySettle=yes". No flag and no environment variable
// sets it, so a released listproxy always checks.
var anySettle string

// leastSettle is the shortest --upstream-settle that is safe. each: the API servers are asked one
// by one (--upstream).
func leastSettle(each bool) time.Duration {
	if each {
		return discovery.LeastSettle(upstream.SlowestCheck)
	}
	return discovery.LeastSettle(discovery.SlowestLook)
}

// heardWithin is how long, at most, a change of the API servers goes unnoticed.
func (o *options) heardWithin() time.Duration {
	if len(o.upstreams) > 0 {
		return upstream.SlowestNews
	}
	return discovery.SlowestNews
}

// checkSettle refuses an --upstream-settle that is over before two versions that serve at the same
// time are noticed again.
func (o *options) checkSettle() error {
	each := len(o.upstreams) > 0
	least, where := leastSettle(each), "without --upstream"
	if each {
		where = "with --upstream"
	}
	if anySettle != "" {
		least = 0
	}
	if o.settle < least {
		return fmt.Errorf("--upstream-settle %v is too short: lists could come from memory between two checks of API servers of "+
			"different versions, "+
			"and mix what they write: give at least %v (%s), or leave it out (%v)", o.settle, least, where, defaultSettle)
	}
	return nil
}

// leastSettleUsage says in the help what is refused.
func leastSettleUsage() string {
	return fmt.Sprintf("at least %v, and with --upstream %v", leastSettle(false), leastSettle(true))
}
