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

// app has all parts of a running listproxy, already connected with each other.
type app struct {
	api       apiServer
	rights    rights
	cache     cache
	log       *slog.Logger
	ports     *ports
	handler   http.Handler
	forward   *forward.Forwarder
	auditLog  *observe.AuditLog // nil if there is no audit log
	adminPort http.Handler
	draining  atomic.Bool // set when the shutdown begins
}

// assemble makes the parts and connects them. The caller must close the app. After an error nothing is closed, since the
// process ends.
func (o *options) assemble(api apiServer, p *ports, ins *instruments, log *slog.Logger) (*app, error) {
	auditLog, err := observe.OpenAuditLog(o.audit.config)
	if err != nil {
		return nil, err
	}
	a := &app{
		api:      api,
		log:      log,
		ports:    p,
		forward:  forward.New(api.transports, log),
		auditLog: auditLog,
	}
	a.rights, err = o.newRights(api, ins.observer)
	if err != nil {
		return nil, err
	}
	a.cache, err = o.newCache(api, a.rights.authorizer, ins.observer, log)
	if err != nil {
		return nil, err
	}
	ins.observer.IsServed = a.cache.cluster.Serves // metrics name only resources that the cluster serves
	handler := o.newHandler(a, ins.observer)
	a.handler = handler.Chain()
	a.adminPort = o.newAdminPort(a, handler.Limits, ins.metrics)
	return a, nil
}

// rights has the parts that find out who callers are and what they may do.
type rights struct {
	authorizer *auth.Authorizer
	whoAmI     *auth.WhoAmI // nil if there is no audit log
}

// newRights returns the parts that ask the API server about callers. They send nothing before the first caller comes.
func (o *options) newRights(api apiServer, observer *observe.Observer) (rights, error) {
	config := auth.ReviewConfig{
		TTL:       o.callers.reviewTTL,
		MaxOutage: o.cache.stalenessBound,
		// During an outage the answers to reviews do not age: see [clock.Outage.AsOf].
		AsOf: func(now time.Time) time.Time { return api.health.Outage().AsOf(now, o.cache.stalenessBound) },
	}
	send := auth.SendAs(api.transports.SendAs)
	if o.callers.clientCA != nil {
		// A client certificate cannot be sent on, so listproxy impersonates the caller. About such a caller, WithOwnAccount
		// asks with listproxy's own account.
		sendWithOwnAccount, err := auth.WithOwnAccount(send, api.ownConfig)
		if err != nil {
			return rights{}, err
		}
		send = sendWithOwnAccount
	}
	sendReview := observer.InstrumentSend(observe.PurposeReview, send)
	r := rights{authorizer: auth.NewAuthorizer(sendReview, api.transports.URL(), config)}
	if o.audit.config.Path != "" {
		sendWhoAmI := observer.InstrumentSend(observe.PurposeWhoAmI, send)
		r.whoAmI = auth.NewWhoAmI(sendWhoAmI, api.transports.URL(), config)
	}
	return r, nil
}

// cache has the parts that keep collections in memory. Each collection has a feed, which keeps it current by a list and a watch
// of the API server. The cluster notices changes of definitions and API servers, which collections must follow.
type cache struct {
	compressor  *gzip.Compressor
	collections *snapshot.Collections
	cluster     *cluster.Cluster
	warmup      *proxy.Warmup
}

// newCache returns the parts that keep collections. No feed runs yet. The cluster tells authorizer which rights were revoked.
func (o *options) newCache(
	api apiServer, authorizer *auth.Authorizer, observer *observe.Observer, log *slog.Logger,
) (cache, error) {
	client, err := newFeedClient(api.ownConfig, observer)
	if err != nil {
		return cache{}, err
	}
	// Each request of elsewhere opens a new connection, so that a load balancer can lead it to another API server.
	elsewhere, err := newFeedClient(upstream.WithoutConnectionReuse(api.ownConfig), observer)
	if err != nil {
		return cache{}, err
	}
	compressor, err := gzip.NewCompressor(compressedBound(o.cache.maxBytes.Value()))
	if err != nil {
		return cache{}, err
	}
	// Collections and the cluster need each other, so kube is set after the collections are made. Until then, nobody calls the
	// two functions of snapshotConfig that use kube: no feed runs yet.
	var kube *cluster.Cluster
	snapshotConfig := snapshot.Config{
		Client:    client,
		Elsewhere: elsewhere,
		Base:      api.transports.URL(),
		SelectableFields: func(ctx context.Context, gvr schema.GroupVersionResource) ([]wire.Field, error) {
			return kube.Fields(ctx, gvr)
		},
		Outage: api.health.Outage,
		SameTimeline: func(ctx context.Context, revision uint64, heardAt time.Time) (same, proofMayCome bool) {
			return kube.SameTimeline(ctx, revision, heardAt)
		},
		ContinueToken: policy.EncodeContinue,
		Log:           log,
	}
	o.cache.applyTo(&snapshotConfig)
	collections := snapshot.NewCollections(snapshotConfig)
	api.health.OnOutageEnd(collections.ProbeAll)
	clusterConfig := cluster.Config{
		Invalidate: collections.Invalidate,
		Verify:     collections.Verify,
		Revoked:    authorizer.RecordRevocation,
		// The cluster learns from watches, which are open again only seconds after an outage.
		AsOf: func(now time.Time) time.Time {
			return api.health.Outage().AsOfWithoutStream(now, o.cache.stalenessBound)
		},
		Log: log,
	}
	kube, err = cluster.New(api.ownConfig, clusterConfig)
	if err != nil {
		return cache{}, err
	}
	return cache{
		compressor:  compressor,
		collections: collections,
		cluster:     kube,
		warmup:      proxy.NewWarmup(o.cache.eagerCollections, kube, collections, log),
	}, nil
}

// newFeedClient returns a client for feeds. observer observes its requests.
func newFeedClient(config *rest.Config, observer *observe.Observer) (*http.Client, error) {
	client, err := kubehttp.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("the client for feeds: %w", err)
	}
	client.Transport = observer.FeedTransport(client.Transport, source.Describe)
	return client, nil
}

// consistentWait is how long a consistent list waits for the proof that memory is current, before it is forwarded. With
// a healthy upstream the proof takes less.
const consistentWait = 1500 * time.Millisecond

// newHandler returns the handler of all requests, which uses the parts of a.
func (o *options) newHandler(a *app, observer *observe.Observer) *proxy.Handler {
	return &proxy.Handler{
		Draining:       a.draining.Load,
		GoawayChance:   o.serving.goawayChance,
		ConsistentWait: consistentWait,
		Authenticator:  o.callers.newAuthenticator(),
		Limits:         o.limits.newLimits(),
		Upstream:       a.api.transports,
		Unreachable:    func() bool { return a.api.health.Outage().Ongoing },
		Forward:        a.forward,
		Policy:         o.cache.policy,
		Cluster:        a.cache.cluster,
		Authorizer:     a.rights.authorizer,
		Collections:    a.cache.collections,
		Compressor:     a.cache.compressor,
		WhoAmI:         a.rights.whoAmI,
		AuditLog:       a.auditLog,
		Observer:       observer,
		Log:            a.log,
		LogLimiter:     telemetry.NewLogLimiter(),
	}
}

// close closes the parts that hold resources. The audit log is closed last, since answers write their events to it.
func (a *app) close() {
	a.cache.collections.Close()
	a.cache.compressor.Close()
	if a.auditLog == nil {
		return
	}
	if err := a.auditLog.Close(); err != nil {
		a.log.Error("the audit log cannot be closed", "error", err)
	}
}
