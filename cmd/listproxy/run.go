package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/proxy/authz"
	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/discovery"
	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/server"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// run serves until ctx ends, and then lets requests finish for a bounded time.
func (o *options) run(ctx context.Context, stderr io.Writer) error {
	log := telemetry.NewLogger(stderr, telemetry.Format(o.logFormat), o.level)
	o.tuneMemory(log)
	// What Kubernetes' libraries have to say goes the same way: in the same format, masked, and
	// for those who debug it.
	klog.SetSlogLogger(telemetry.Libraries(log))

	if err := setOwnPings(); err != nil {
		return err
	}
	cfg, err := upstreamConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	endpoints, err := o.endpoints(cfg, log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(o.bindAddress, strconv.Itoa(o.securePort)))
	if err != nil {
		return fmt.Errorf("serving clients (--bind-address, --secure-port): %w", err)
	}
	defer func() { _ = listener.Close() }()
	operators, err := net.Listen("tcp", o.adminBindAddress)
	if err != nil {
		return fmt.Errorf("serving health checks (--admin-bind-address): %w", err)
	}
	defer func() { _ = operators.Close() }()
	ports, err := o.limits.listeners(log)
	if err != nil {
		return err
	}
	operators = ports.admin.Listen(operators)
	o.warnOfTLS(log)
	certificate, err := o.serving(log)
	if err != nil {
		return err
	}
	observing, err := newObserving(ctx, log)
	if err != nil {
		return err
	}
	defer observing.close(log)
	app, err := o.assemble(cfg, endpoints, observing, log)
	if err != nil {
		return err
	}
	defer app.close()
	// Both ports ask for client certificates: inside tunnels as well.
	o.tls.ClientCAs = certs.ClientCAs(o.identity.cas()...)
	app.certificate, app.tls = certificate, o.tls
	if app.connect, err = o.openConnect(app.upstream, certificate, observing.Observer, log); err != nil {
		return err
	}
	if app.connect != nil {
		app.connect.listener = ports.clients.Listen(app.connect.listener)
		defer func() { _ = app.connect.listener.Close() }()
	}
	if err := admin.RegisterState(observing.metrics, admin.State{Connections: ports.stats}); err != nil {
		return err
	}
	log.Info("serving", "address", listener.Addr().String(), "admin", operators.Addr().String(),
		"upstream", cfg.Host, "version", version())
	return app.serve(ctx, ports.clients.Listen(listener), operators, ending{o.delay, o.drain})
}

// upstreamConfig says where the API server is, and what the proxy itself is allowed there.
func upstreamConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no --kubeconfig is given, and this is not a pod of a cluster: give listproxy a kubeconfig with an account " +
				"of its own ($KUBECONFIG is yours, and is not used)")
		}
		if err != nil {
			return nil, fmt.Errorf("the account of this pod: %w", err)
		}
		return identified(cfg), nil
	}
	if err := checkLogin(kubeconfig); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)
	}
	return identified(cfg), nil
}

// endpoints returns the addresses that --upstream gives, and makes all clients of cfg use them; nil
// if there are none.
func (o *options) endpoints(cfg *rest.Config, log *slog.Logger) (*upstream.Endpoints, error) {
	if len(o.upstreamAddresses) == 0 {
		return nil, nil //nolint:nilnil // no addresses are no error
	}
	endpoints, err := upstream.NewEndpoints(cfg, o.upstreamAddresses, log)
	if err != nil {
		return nil, fmt.Errorf("--upstream: %w", err)
	}
	endpoints.Use(cfg)
	log.Info("the API servers are reached at the addresses of --upstream", "endpoints", o.upstreamAddresses)
	return endpoints, nil
}

func identified(cfg *rest.Config) *rest.Config {
	cfg.UserAgent = userAgent("listproxy")
	return cfg
}

// app is what runs: the parts, wired.
type app struct {
	log         *slog.Logger
	upstream    *url.URL
	tls         server.TLS
	certificate *certs.Certificate
	connect     *connectListener // nil: not opened
	front       http.Handler
	forward     *forward.Forwarder
	cluster     *discovery.Cluster
	authorizer  *authz.Authorizer
	// impersonator is nil if no user is impersonated.
	impersonator *authz.Impersonator
	health       *upstream.Health
	collections  *snapshot.Collections
	warmup       *proxy.Warmup
	watchRBAC    func(context.Context) error
	clientCAs    []*certs.ClientCA
	whoAmI       *authz.WhoAmI  // nil: nobody wants to know who callers are
	auditor      *proxy.Auditor // nil: no audit log
	compressor   *gzip.Compressor
	metrics      http.Handler
	pages        admin.Pages
	status       *admin.StatusSource
	draining     atomic.Bool
}

// assemble makes the parts and wires them. Whoever calls it closes what it returns.
func (o *options) assemble(cfg *rest.Config, endpoints *upstream.Endpoints, observing *observing, log *slog.Logger) (_ *app, err error) {
	a := &app{log: log, clientCAs: o.identity.cas(), metrics: observing.metrics.Handler(log)}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	transports, err := upstream.New(cfg)
	if err != nil {
		return nil, err
	}
	a.upstream = transports.URL()
	if a.health, err = upstream.NewHealth(cfg, upstream.HealthConfig{
		Needs:    func() []schema.GroupVersionResource { return a.needs(o.eagerly) },
		Versions: func() []string { return a.cluster.Servers.Versions() },
		Log:      log,
	}); err != nil {
		return nil, err
	}
	quiet := a.health.Quiet(log) // for all others who ask the upstream
	reviews := authz.Config{TTL: o.reviewTTL}
	if len(a.clientCAs) > 0 {
		if err := transports.Impersonate(cfg); err != nil {
			return nil, err
		}
		if a.impersonator, err = authz.NewImpersonator(cfg, observing.reviews, reviews, quiet); err != nil {
			return nil, err
		}
	}
	authenticator, err := o.identity.authenticator()
	if err != nil {
		return nil, err
	}
	a.authorizer, err = authz.NewAuthorizer(observing.reviews(transports.SendAs), transports.URL(), reviews, quiet)
	if err != nil {
		return nil, err
	}
	a.watchRBAC = func(ctx context.Context) error { return discovery.WatchRBAC(ctx, cfg, a.flushRights, quiet) }
	if a.compressor, err = gzip.NewCompressor(o.compressedBound); err != nil {
		return nil, err
	}
	if err := o.assembleFeeds(a, cfg, endpoints, observing, quiet); err != nil {
		return nil, err
	}
	if endpoints != nil {
		if err := admin.RegisterEndpoints(observing.metrics, endpoints.Stats); err != nil {
			return nil, err
		}
	}
	bounds, err := o.limits.inflight()
	if err != nil {
		return nil, err
	}
	if a.whoAmI, err = o.newWhoAmI(transports, observing); err != nil {
		return nil, err
	}
	if a.auditor, err = newAuditor(o.audit, a.whoAmI, log); err != nil {
		return nil, err
	}
	a.forward = forward.New(transports, quiet)
	observing.Serves = a.cluster.Catalog.Serves
	handler := &proxy.Handler{
		Draining:        a.draining.Load,
		StallTimeout:    o.limits.stall,
		MaxBodyBytes:    o.limits.bodyBytes,
		ConsistentLists: policy.ConsistentLists(o.consistent),
		ConsistentWait:  o.consistentWait,
		Watches:         o.watches,
		Authenticator:   authenticator,
		Inflight:        bounds,
		Upstream:        transports,
		Forward:         a.forward,
		Policy:          o.policy,
		Catalog:         a.cluster.Catalog,
		Schemas:         a.cluster.Schemas,
		Authorizer:      a.authorizer,
		Impersonator:    a.impersonator,
		Collections:     a.collections,
		Compressor:      a.compressor,
		WhoAmI:          a.whoAmI,
		Auditor:         a.auditor,
		Observer:        observing.Observer,
		Log:             quiet,
	}
	state := admin.State{
		Collections: a.collections.Stats,
		Staleness:   o.staleness,
		Stored:      a.collections.Stored,
		Compression: a.compressor.Stats,
		SelfChecks:  a.collections.SelfChecks,
		Reviews:     a.authorizer.Stats,
		Inflight:    bounds.Stats,
		Health:      a.health.Stats,
		// They are there before anybody reads them.
		Certificates: a.expiries,
	}
	if err := admin.RegisterState(observing.metrics, state); err != nil {
		return nil, err
	}
	if a.pages, err = o.pages(a, endpoints, observing, state, log); err != nil {
		return nil, err
	}
	a.front = handler.Chain()
	return a, nil
}

// assembleFeeds makes what is fed by the upstream, and what tells the feeds that the upstream
// changes.
func (o *options) assembleFeeds(a *app, cfg *rest.Config, endpoints *upstream.Endpoints, observing *observing, log *slog.Logger) error {
	own, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return fmt.Errorf("the proxy's own way to the API server: %w", err)
	}
	own.Transport = observing.FeedTransport(own.Transport, a.upstream)
	// Feeds ask the cluster, and the cluster drops what feeds have brought.
	a.collections = snapshot.NewCollections(snapshot.Config{
		Client: own,
		Base:   a.upstream,
		Limits: snapshot.Limits{History: o.history, Staleness: o.staleness, Wait: o.wait},
		Bytes:  o.byteBound,
		Idle:   o.idle,
		Jitter: o.jitter,

		Settings: func(gvr schema.GroupVersionResource) snapshot.Settings {
			rule := o.policy.For(gvr.Group, gvr.Version, gvr.Resource)
			return snapshot.Settings{
				History: rule.HistoryWindow, Bytes: rule.MaxBytes, Idle: rule.IdleTimeout,
				Watches: rule.AnswersWatches(o.watches),
			}
		},
		Fields: func(ctx context.Context, gvr schema.GroupVersionResource) ([]wire.Field, error) {
			return a.cluster.Fields(ctx, gvr)
		},
		SameServers:   func(ctx context.Context) (bool, error) { return a.cluster.Servers.Same(ctx) },
		SelfCheck:     o.selfCheck,
		HeardWithin:   o.heardWithin(),
		Reopened:      observing.Reopened,
		ContinueToken: policy.EncodeContinue,
		Compressor:    a.compressor,
		Log:           log,
	})
	config := discovery.Config{
		Invalidate: a.collections.Invalidate,
		Settle:     o.settle,
		Quarantine: o.quarantine,
		Vouched: func(group, version, resource string) bool {
			return o.policy.For(group, version, resource).SameForEveryone
		},
		Log: log,
	}
	if endpoints != nil {
		config.Endpoints = endpoints
	}
	if a.cluster, err = discovery.New(cfg, config); err != nil {
		return err
	}
	a.warmup = proxy.NewWarmup(o.eagerly, a.cluster.Catalog, a.cluster.Schemas, a.collections, log)
	return nil
}

// flushRights forgets what callers, and listproxy's own account, may do.
func (a *app) flushRights() {
	a.authorizer.Flush()
	if a.impersonator != nil {
		a.impersonator.Flush()
	}
}

// close ends the parts that there are.
func (a *app) close() {
	if a.collections != nil {
		a.collections.Close()
	}
	if a.authorizer != nil {
		a.authorizer.Close()
	}
	if a.impersonator != nil {
		a.impersonator.Close()
	}
	if a.compressor != nil {
		a.compressor.Close()
	}
	closeAuditor(a.auditor, a.log)
	if a.whoAmI != nil {
		a.whoAmI.Close()
	}
}

// needs are the resources that listproxy is to keep, or keeps.
func (a *app) needs(eager []policy.EagerCollection) []schema.GroupVersionResource {
	var needed []schema.GroupVersionResource
	for _, e := range eager {
		needed = append(needed, schema.GroupVersionResource{Group: e.Group, Version: e.Version, Resource: e.Resource})
	}
	for _, c := range a.collections.Stats() {
		needed = append(needed, c.Resource.GroupVersionResource)
	}
	return needed
}

// ready says whether clients should come: everything eager is there, the end has not begun, and
// what is wrong with the upstream, if anything is, is not this replica's own fault
// (docs/operations.md).
func (a *app) ready() (bool, []statusz.Check) {
	checks := []statusz.Check{
		{Name: "serving", OK: !a.draining.Load(), Message: "draining"},
		{Name: "discovery", OK: a.cluster.Catalog.Ready()},
		{Name: "schemas", OK: a.cluster.Schemas.Ready()},
		{Name: "servers", OK: a.cluster.Servers.Ready()},
	}
	if checks[0].OK {
		checks[0].Message = ""
	}
	checks = append(checks, upstreamReady(a.health.Stats()))
	checks = append(checks, a.warmup.Checks()...)
	for _, c := range checks {
		if !c.OK {
			return false, checks
		}
	}
	return true, checks
}

// upstreamReady says whether clients should come, as far as the upstream goes: not if the fault is
// this replica's own, since other replicas may have what it has not. What all of them share, as an
// account that was deleted, is no reason: if all were taken out, clients would reach nobody, and
// not even be told why.
func upstreamReady(s upstream.HealthStats) statusz.Check {
	check := statusz.Check{Name: admin.UpstreamCheck, OK: !s.Own}
	if s.Condition != upstream.ConditionOK {
		check.Message = admin.UpstreamWords(s)
	}
	return check
}

// ending is how long the parts of an end in order take: to go on as before while others learn of
// it, and, at most, to let requests end.
type ending struct{ delay, drain time.Duration }

// maxBrokenDrain is how long requests may take to end, at most, in a process of which a part has
// failed: it may not do its work any more, and another one waits to be started in its place.
const maxBrokenDrain = 10 * time.Second

// timeout returns how long requests may take to end, at most; err is how a part has failed, or nil.
func (e ending) timeout(err error) time.Duration {
	if err != nil {
		return min(e.drain, maxBrokenDrain)
	}
	return e.drain
}

// serve runs all parts until ctx ends or one of them fails.
func (a *app) serve(ctx context.Context, clients, operators net.Listener, end ending) error {
	// The parts outlive ctx: what they watch for must be heard of until the last answer.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	mainServer := server.New(a.front, a.tls.Config(a.certificate.Get), a.log)
	drain := server.NewDrain(mainServer, func(within time.Duration) {
		a.forward.EndWatches(within)
		a.collections.EndWatches(within)
	})
	health := server.New(admin.New(a.ready, a.metrics, a.pages), nil, a.log)

	var parts sync.WaitGroup
	failed := make(chan error, 5) // one for each run
	run := func(what string, part func() error) {
		parts.Go(func() {
			if err := part(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s: %w", what, err)
			}
		})
	}
	for _, ca := range a.clientCAs {
		parts.Go(func() { ca.Run(life) })
	}
	parts.Go(func() { a.health.Run(life) })
	parts.Go(func() { a.status.Run(life) })
	parts.Go(func() { a.cluster.Run(life) })
	parts.Go(func() { a.warmup.Run(life) })
	run("watching RBAC", func() error { return a.watchRBAC(life) })
	parts.Go(func() { a.certificate.Run(life) })
	if a.connect != nil {
		parts.Go(func() { a.connect.certificate.Run(life) })
		run("serving CONNECT", a.connect.serve)
		run("serving tunnels", func() error { return mainServer.Serve(a.connect.tunnels) })
	}
	run("serving clients", func() error { return mainServer.ServeTLS(clients, "", "") })
	run("serving health checks", func() error { return health.Serve(operators) })

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	a.draining.Store(true)
	a.log.Info("stopping", "delay", end.delay, "timeout", end.timeout(err))
	if err == nil && end.delay > 0 {
		select {
		case <-time.After(end.delay):
		case err = <-failed:
		}
	}
	begun := time.Now()
	if a.connect != nil {
		a.connect.shut()
	}
	timeout := end.timeout(err)
	switch cut, clean := drain.End(timeout); {
	case clean:
		a.log.Info("drained: all requests have ended", "after", time.Since(begun).Round(time.Millisecond))
	case cut > 0:
		a.log.Warn("requests were cut, which had not ended in time", "requests", cut, "timeout", timeout)
	default:
		a.log.Warn("connections were cut, on which requests were still coming in, or answers going out", "timeout", timeout)
	}
	_ = health.Close()
	stop()
	parts.Wait()
	return err
}
