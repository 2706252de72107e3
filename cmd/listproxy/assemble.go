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

// app has all parts of a running listproxy, already connected with each other.
type app struct {
	apiServer
	rights
	feeds
	log         *slog.Logger
	ports       *ports
	handler     http.Handler
	forward     *forward.Forwarder
	auditLog    *observe.AuditLog // nil if there is no audit log
	adminConfig admin.Config
	draining    atomic.Bool
}

// assemble makes the parts and connects them. Its caller must close the app. After an error, parts that were made stay
// open: the process ends.
func (o *options) assemble(
	api apiServer, ports *ports, instruments *instruments, log *slog.Logger,
) (*app, error) {
	auditLog, err := o.audit.open()
	if err != nil {
		return nil, err
	}
	rights, err := o.newRights(api, instruments, log)
	if err != nil {
		return nil, err
	}
	feeds, err := o.newFeeds(api, instruments, log)
	if err != nil {
		return nil, err
	}
	a := &app{
		apiServer: api,
		rights:    rights,
		feeds:     feeds,
		log:       log,
		ports:     ports,
		forward:   forward.New(api.transports, log),
		auditLog:  auditLog,
	}
	instruments.Serves = a.cluster.Serves
	handler := o.newHandler(a, instruments, log)
	a.handler = handler.Chain()
	a.adminConfig = o.adminConfig(a, handler.Limits, instruments)
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

// consistentWait bounds the time for which a consistent list waits for the proof that memory is current. Then it is
// forwarded. The proof of a healthy upstream takes less time.
const consistentWait = 1500 * time.Millisecond

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
		LogLimiter:     telemetry.NewLogLimiter(),
	}
}

// rights are the parts that find out who callers are and what they may do.
type rights struct {
	authorizer *auth.Authorizer
	whoAmI     *auth.WhoAmI                // nil if there is no audit log
	watchRBAC  func(context.Context) error // returns when the context ends, or with an error
}

func (o *options) newRights(api apiServer, instruments *instruments, log *slog.Logger) (rights, error) {
	config := auth.ReviewConfig{
		TTL:       o.callers.reviewTTL,
		MaxOutage: o.cache.staleness,
		AsOf:      func(now time.Time) time.Time { return api.health.Outage().AsOf(now, o.cache.staleness) },
	}
	send := auth.SendAs(api.transports.SendAs)
	if o.callers.clientCA != nil {
		var err error
		if send, err = auth.WithOwnAccount(send, api.ownConfig); err != nil {
			return rights{}, err
		}
	}
	review := observe.Instrument(instruments.Observer, observe.PurposeReview, send) //nolint:bodyclose // it is a function
	authorizer := auth.NewAuthorizer(review, api.transports.URL(), config)
	r := rights{
		authorizer: authorizer,
		watchRBAC: func(ctx context.Context) error {
			return cluster.WatchRBAC(ctx, api.ownConfig, authorizer.RecordRevocation, log)
		},
	}
	if o.audit.config.Enabled() {
		whoAmI := observe.Instrument(instruments.Observer, observe.PurposeWhoAmI, send) //nolint:bodyclose // it is a function
		r.whoAmI = auth.NewWhoAmI(whoAmI, api.transports.URL(), config)
	}
	return r, nil
}

// feeds are the parts that keep collections in memory, and the cluster, which notices changes of definitions and API
// servers.
type feeds struct {
	compressor  *gzip.Compressor
	collections *snapshot.Collections
	cluster     *cluster.Cluster
	warmup      *proxy.Warmup
}

func (o *options) newFeeds(api apiServer, instruments *instruments, log *slog.Logger) (feeds, error) {
	client, err := newFeedClient(api.ownConfig, instruments)
	if err != nil {
		return feeds{}, err
	}
	elsewhere, err := newFeedClient(upstream.WithoutReuse(api.ownConfig), instruments)
	if err != nil {
		return feeds{}, err
	}
	compressor, err := gzip.NewCompressor(compressedBound(o.cache.bytes.Value()))
	if err != nil {
		return feeds{}, err
	}
	// Collections and the cluster need each other: feeds ask the cluster about definitions and servers, and the
	// cluster invalidates collections. No feed starts before both are made.
	var served *cluster.Cluster
	snapshotConfig := snapshot.Config{
		Client:    client,
		Elsewhere: elsewhere,
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
	o.cache.applyTo(&snapshotConfig)
	collections := snapshot.NewCollections(snapshotConfig)
	api.health.OnReturn(collections.Resume)
	clusterConfig := cluster.Config{
		Invalidate: collections.Invalidate,
		Verify:     collections.Verify,
		AsOf:       func(now time.Time) time.Time { return api.health.Outage().AsOfWithoutStream(now, o.cache.staleness) },
		Log:        log,
	}
	if served, err = cluster.New(api.ownConfig, clusterConfig); err != nil {
		return feeds{}, err
	}
	return feeds{
		compressor:  compressor,
		collections: collections,
		cluster:     served,
		warmup:      proxy.NewWarmup(o.cache.eagerCollections, served, collections, log),
	}, nil
}

// newFeedClient returns a client for feeds. instruments observes its requests.
func newFeedClient(config *rest.Config, instruments *instruments) (*http.Client, error) {
	client, err := kubehttp.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("the client for feeds: %w", err)
	}
	client.Transport = instruments.FeedTransport(client.Transport, source.Describe)
	return client, nil
}
