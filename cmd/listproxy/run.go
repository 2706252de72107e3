package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/telemetry"
)

// untilSignal returns a context that ends with SIGINT or SIGTERM: that begins a graceful shutdown. A
// second signal ends the process at once, as without a handler.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// run serves until ctx ends, and then lets requests finish for a bounded time.
func (o *options) run(ctx context.Context, stderr io.Writer) error {
	log := o.telemetry.logger(stderr)
	o.cache.tuneMemory(log)
	// Messages of Kubernetes' libraries go to the same log: in the same format, masked, and at the
	// level debug.
	klog.SetSlogLogger(telemetry.Libraries(log))

	if err := setOwnPings(); err != nil {
		return err
	}
	config, err := o.upstream.clientConfig()
	if err != nil {
		return err
	}
	api, err := reach(config, o.callers.clientCA != nil, log)
	if err != nil {
		return err
	}
	observing, err := newObserving(ctx, log)
	if err != nil {
		return err
	}
	defer observing.close(log)
	ports, err := o.listen(api.transports.URL(), observing.Observer, log)
	if err != nil {
		return err
	}
	defer ports.close()
	app, err := o.assemble(api, ports, observing, log)
	if err != nil {
		return err
	}
	defer app.close()
	log.Info("serving", "address", ports.clients.Addr().String(), "admin", ports.admin.Addr().String(),
		"upstream", api.own.Host, "version", version())
	return app.serve(ctx, ending{o.serving.delay, o.serving.drain})
}

// ending has the times of a graceful shutdown: how long listproxy serves as before while others
// notice, and how long requests may take to end, at most.
type ending struct{ delay, drain time.Duration }

// maxBrokenDrain is the time that requests may take to end, at most, if a part of the process has
// failed: the process may no longer work, and another waits to replace it.
const maxBrokenDrain = 10 * time.Second

// timeout returns the time that requests may take to end, at most; err is how a part has failed, or nil.
func (e ending) timeout(err error) time.Duration {
	if err != nil {
		return min(e.drain, maxBrokenDrain)
	}
	return e.drain
}

// serve runs all parts until ctx ends or one of them fails, and then lets requests end.
func (a *app) serve(ctx context.Context, end ending) error {
	// The parts outlive ctx: changes must be noticed until the last answer.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	broken, fail := context.WithCancelCause(context.WithoutCancel(ctx)) // its cause is the first failure
	defer fail(nil)
	clients := serve.New(a.handler, a.ports.certificates.TLS(), a.log)
	noted := clients.ConnContext
	clients.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return auth.WithConnection(noted(ctx, conn))
	}
	drain := serve.NewDrain(clients, func(within time.Duration) {
		a.collections.EndWatches(within) // those from memory
		a.forward.EndWatches(func(watches int) (time.Duration, time.Duration) {
			return a.collections.PaceEnds(watches, within)
		})
	})
	operators := serve.New(admin.New(a.operators), nil, a.log)
	parts := a.start(life, fail, clients, operators)

	select {
	case <-ctx.Done():
	case <-broken.Done():
	}
	a.draining.Store(true)
	a.log.Info("stopping", "delay", end.delay, "timeout", end.timeout(context.Cause(broken)))
	select {
	case <-time.After(end.delay):
	case <-broken.Done():
	}
	err := context.Cause(broken)
	a.drain(drain, end.timeout(err))
	_ = operators.Close()
	stop()
	parts.Wait()
	return err
}

// start starts all parts. They end with ctx, and the servers when they are closed. A part that fails
// calls fail.
func (a *app) start(ctx context.Context, fail func(error), clients, operators *http.Server) *sync.WaitGroup {
	parts := &sync.WaitGroup{}
	run := func(what string, part func() error) {
		parts.Go(func() {
			if err := part(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				fail(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	parts.Go(func() { a.transports.Run(ctx, a.log) })
	parts.Go(func() { a.health.Run(ctx) })
	parts.Go(func() { a.cluster.Run(ctx) })
	parts.Go(func() { a.warmup.Run(ctx) })
	run("watching RBAC", func() error { return a.watchRBAC(ctx) })
	parts.Go(func() { a.ports.certificates.Run(ctx) })
	if connect := a.ports.connect; connect != nil {
		run("serving CONNECT", connect.serve)
		run("serving tunnels", func() error { return clients.Serve(connect.tunnels) })
	}
	run("serving clients", func() error { return clients.ServeTLS(a.ports.clients, "", "") })
	run("serving health checks", func() error { return operators.Serve(a.ports.admin) })
	return parts
}

// drain lets requests end, within a time, and cuts the others.
func (a *app) drain(drain *serve.Drain, timeout time.Duration) {
	begun := time.Now()
	if a.ports.connect != nil {
		a.ports.connect.shut()
	}
	switch cut, clean := drain.End(timeout); {
	case clean:
		a.log.Info("drained: all requests have ended", "after", time.Since(begun).Round(time.Millisecond))
	case cut > 0:
		a.log.Warn("requests were cut, which had not ended in time", "requests", cut, "timeout", timeout)
	default:
		a.log.Warn("connections were cut, on which requests were still coming in, or answers going out", "timeout", timeout)
	}
}
