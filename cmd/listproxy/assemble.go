package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/telemetry"
)

// apiServer has the clients and transports with which listproxy reaches the API server.
type apiServer struct {
	own        *rest.Config // with listproxy's own credentials; health observes its requests
	health     *upstream.Health
	transports *upstream.Transports // for requests with callers' credentials
}

// app has all parts of a running listproxy, connected with each other.
type app struct {
	apiServer
	rights
	feeds
	log         *slog.Logger
	ports       *ports
	handler     http.Handler
	forward     *forward.Forwarder
	auditLog    *observe.AuditLog // nil if there is no audit log
	metrics     http.Handler
	ready       admin.Readiness
	adminConfig admin.Config
	draining    atomic.Bool
}

// assemble makes the parts and connects them. Its caller must close the app. After an error, parts that were made stay
// open: the process ends.
func (o *options) assemble(
	api apiServer, ports *ports, instruments *instruments, log *slog.Logger,
) (_ *app, err error) {
	a := &app{apiServer: api, log: log, ports: ports, metrics: telemetry.MetricsHandler(instruments.metrics, log)}
	if a.auditLog, err = o.audit.open(log); err != nil {
		return nil, err
	}
	if a.rights, err = o.newRights(api, instruments, log); err != nil {
		return nil, err
	}
	if a.feeds, err = o.newFeeds(api, instruments, log); err != nil {
		return nil, err
	}
	instruments.Serves = a.cluster.Serves
	a.forward = forward.New(api.transports, log)
	handler := o.newHandler(a, instruments, log)
	a.handler = handler.Chain()
	a.ready = admin.Readiness{
		Draining:  a.draining.Load,
		Discovery: a.cluster.DiscoveryReady,
		Schemas:   a.cluster.DefinitionsReady,
		Servers:   a.cluster.ServersReady,
		Upstream:  a.health.Stats,
		Eager:     a.warmup.Stats,
	}
	o.showState(a, handler, instruments)
	return a, nil
}

// close closes the parts that hold resources. The audit log is closed last, since answers write their events to it.
func (a *app) close() {
	a.collections.Close()
	a.compressor.Close()
	if a.auditLog == nil {
		return
	}
	if err := a.auditLog.Close(); err != nil {
		a.log.Error("the audit log cannot be closed", "error", err)
	}
}

// newHandler returns the handler of all requests, which uses the parts of a.
func (o *options) newHandler(a *app, instruments *instruments, log *slog.Logger) *proxy.Handler {
	return &proxy.Handler{
		Draining:       a.draining.Load,
		GoawayChance:   o.serving.goawayChance,
		ConsistentWait: consistentWait,
		Authenticator:  o.callers.authenticator(),
		Limits:         o.limits.limits(),
		Upstream:       a.transports,
		Unreachable:    func() bool { return a.health.Outage().Lasts },
		Forward:        a.forward,
		Policy:         o.cache.policy,
		Cluster:        a.cluster,
		Authorizer:     a.authorizer,
		Collections:    a.collections,
		Compressor:     a.compressor,
		WhoAmI:         a.whoAmI,
		AuditLog:       a.auditLog,
		Observer:       instruments.Observer,
		Log:            log,
	}
}

// showState registers the metrics of a's state, and fills the admin port's pages.
func (o *options) showState(a *app, handler *proxy.Handler, instruments *instruments) {
	state := admin.State{
		Collections:  a.collections.Stats,
		Eager:        a.warmup.Stats,
		Staleness:    o.cache.staleness,
		Stored:       a.collections.Stored,
		Compression:  a.compressor.Stats,
		SelfChecks:   a.collections.SelfChecks,
		Reviews:      a.authorizer.Stats,
		Inflight:     handler.Limits.Stats,
		Health:       a.health.Stats,
		Connections:  a.ports.connections(),
		Certificates: a.ports.certificates.Expiries,
	}
	instruments.metrics.MustRegister(state)
	a.adminConfig = o.adminConfig(a, instruments)
}

// rights are the parts that find out who callers are and what they may do.
type rights struct {
	authorizer *auth.Authorizer
	whoAmI     *auth.WhoAmI // nil if there is no audit log
	watchRBAC  func(context.Context) error
}

func (o *options) newRights(api apiServer, instruments *instruments, log *slog.Logger) (r rights, err error) {
	reviews := auth.ReviewConfig{
		TTL: o.callers.reviewTTL, KeptFor: o.cache.staleness,
		AsOf: func(now time.Time) time.Time { return api.health.Outage().AsOf(now, o.cache.staleness) },
	}
	send := auth.SendAs(api.transports.SendAs)
	if o.callers.clientCA != nil {
		if send, err = auth.WithOwnAccount(send, api.own); err != nil {
			return r, err
		}
	}
	review := observe.Asking(instruments.Observer, observe.PurposeReview, send) //nolint:bodyclose // it is a function
	r.authorizer = auth.NewAuthorizer(review, api.transports.URL(), reviews, log)
	r.watchRBAC = func(ctx context.Context) error { return cluster.WatchRBAC(ctx, api.own, r.authorizer.Revoked, log) }
	if o.audit.config.Enabled() {
		whoAmI := observe.Asking(instruments.Observer, observe.PurposeWhoAmI, send) //nolint:bodyclose // it is a function
		r.whoAmI = auth.NewWhoAmI(whoAmI, api.transports.URL(), reviews)
	}
	return r, nil
}

// feeds are the parts that keep collections in memory, and the one that notices changes of the cluster itself.
type feeds struct {
	compressor  *gzip.Compressor
	collections *snapshot.Collections
	cluster     *cluster.Cluster
	warmup      *proxy.Warmup
}

func (o *options) newFeeds(api apiServer, instruments *instruments, log *slog.Logger) (f feeds, err error) {
	var clients [2]*http.Client
	for i, config := range []*rest.Config{api.own, upstream.WithoutReuse(api.own)} {
		if clients[i], err = kubehttp.NewClient(config); err != nil {
			return f, fmt.Errorf("the proxy's own way to the API server: %w", err)
		}
		clients[i].Transport = instruments.FeedTransport(clients[i].Transport, source.Describe)
	}
	if f.compressor, err = gzip.NewCompressor(compressedBound(o.cache.bytes.Value())); err != nil {
		return f, err
	}
	// Collections and the cluster need each other: feeds ask the cluster about definitions and servers, and the
	// cluster invalidates collections. No feed starts before both are made.
	var served *cluster.Cluster
	collections := snapshot.Config{
		Client:    clients[0],
		Elsewhere: clients[1],
		Base:      api.transports.URL(),
		Fields: func(ctx context.Context, gvr schema.GroupVersionResource) ([]wire.Field, error) {
			return served.Fields(ctx, gvr)
		},
		Outage: api.health.Outage,
		SameTimeline: func(ctx context.Context, revision uint64, heard time.Time) (same, soon bool) {
			return served.SameTimeline(ctx, revision, heard)
		},
		ContinueToken: policy.EncodeContinue,
		Log:           log,
	}
	o.cache.ApplyTo(&collections)
	f.collections = snapshot.NewCollections(collections)
	api.health.OnReturn(f.collections.Resume)
	config := cluster.Config{
		Invalidate: f.collections.Invalidate,
		Verify:     f.collections.Verify,
		AsOf:       func(now time.Time) time.Time { return api.health.Outage().AsOfWithoutStream(now, o.cache.staleness) },
		Log:        log,
	}
	if served, err = cluster.New(api.own, config); err != nil {
		return f, err
	}
	f.cluster = served
	f.warmup = proxy.NewWarmup(o.cache.eagerCollections, served, f.collections, log)
	return f, nil
}
