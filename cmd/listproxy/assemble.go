package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/proxy/audit"
	"github.com/listproxy/listproxy/proxy/authz"
	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/discovery"
	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/server"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// app is what runs: the parts, wired.
type app struct {
	log         *slog.Logger
	upstream    *url.URL
	transports  *upstream.Transports
	tls         server.TLS
	certificate *certs.Certificate
	connect     *connectListener // nil: not opened
	handler     http.Handler
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
	whoAmI       *authz.WhoAmI // nil: nobody wants to know who callers are
	auditLog     *audit.Log    // nil: none
	compressor   *gzip.Compressor
	metrics      http.Handler
	pages        admin.Pages
	status       *admin.StatusSource
	draining     atomic.Bool
}

// assemble makes the parts and wires them. Its caller must close the app.
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
	a.transports, a.upstream = transports, transports.URL()
	if a.health, err = upstream.NewHealth(cfg, upstream.HealthConfig{
		Needs:    func() []schema.GroupVersionResource { return a.needs(o.eagerly) },
		Versions: func() []string { return a.cluster.Servers.Versions() },
		Callers:  transports.Probe,
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
	if a.auditLog, err = openAuditLog(o.audit, log); err != nil {
		return nil, err
	}
	a.forward = forward.New(transports, quiet)
	observing.Serves = a.cluster.Catalog.Serves
	handler := &proxy.Handler{
		Draining:       a.draining.Load,
		StallTimeout:   o.limits.stall,
		MaxBodyBytes:   o.limits.bodyBytes,
		ConsistentWait: o.consistentWait,
		Authenticator:  authenticator,
		Inflight:       bounds,
		Upstream:       transports,
		Forward:        a.forward,
		Policy:         o.policy,
		Catalog:        a.cluster.Catalog,
		Schemas:        a.cluster.Schemas,
		Authorizer:     a.authorizer,
		Impersonator:   a.impersonator,
		Collections:    a.collections,
		Compressor:     a.compressor,
		WhoAmI:         a.whoAmI,
		AuditLog:       a.auditLog,
		Observer:       observing.Observer,
		Log:            quiet,
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
	a.handler = handler.Chain()
	return a, nil
}

// assembleFeeds makes what is fed by the upstream, and what tells the feeds that the upstream
// changes.
func (o *options) assembleFeeds(a *app, cfg *rest.Config, endpoints *upstream.Endpoints, observing *observing, log *slog.Logger) error {
	own, err := upstream.Client(cfg)
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
				Watches: rule.AnswersWatches(),
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
		Endpoints: endpoints,
		Log:       log,
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
	closeAuditLog(a.auditLog, a.log)
	if a.whoAmI != nil {
		a.whoAmI.Close()
	}
}

// needs returns the resources that listproxy keeps, or should keep.
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
