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

// untilSignal returns a context that SIGINT or SIGTERM ends, which begins a graceful shutdown. After that the signals
// have no handler, so a second one ends the process at once.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// run serves until ctx ends, and then lets requests finish for a bounded time.
func (o *options) run(ctx context.Context, stderr io.Writer) error {
	log := o.telemetry.logger(stderr)
	o.cache.tuneMemory(log)
	// Kubernetes' libraries write to the same log: in the same format, masked, and at the level debug.
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
	return app.serve(ctx, shutdownTimes{o.serving.delay, o.serving.drain})
}

// shutdownTimes are the times of a graceful shutdown. For delay listproxy serves as before, while load balancers
// notice. Then requests have the time drain to end.
type shutdownTimes struct{ delay, drain time.Duration }

// maxBrokenDrain bounds the time for requests to end if a part of the process has failed. The process may no longer
// work, and another waits to replace it.
const maxBrokenDrain = 10 * time.Second

// timeout returns the time that requests have to end. failure is the error with which a part has failed, or nil.
func (t shutdownTimes) timeout(failure error) time.Duration {
	if failure != nil {
		return min(t.drain, maxBrokenDrain)
	}
	return t.drain
}

// serve runs all parts until ctx ends or one of them fails, and then lets requests end.
func (a *app) serve(ctx context.Context, times shutdownTimes) error {
	// The parts outlive ctx: until the last answer is written, changes of the cluster must be noticed.
	partsCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	broken, fail := context.WithCancelCause(context.WithoutCancel(ctx)) // its cause is the first failure
	defer fail(nil)
	clients := serve.New(a.handler, a.ports.certificates.TLS(), a.log)
	connContext := clients.ConnContext
	clients.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return auth.WithConnection(connContext(ctx, conn))
	}
	drain := serve.NewDrain(clients, func(timeout time.Duration) {
		a.collections.EndWatches(timeout) // the watches from memory
		a.forward.EndWatches(func(watches int) (time.Duration, time.Duration) {
			return a.collections.PaceEnds(watches, timeout)
		})
	})
	operators := serve.New(admin.New(a.operators), nil, a.log)
	parts := a.start(partsCtx, fail, clients, operators)

	select {
	case <-ctx.Done():
	case <-broken.Done():
	}
	a.draining.Store(true)
	a.log.Info("stopping", "delay", times.delay, "timeout", times.timeout(context.Cause(broken)))
	select {
	case <-time.After(times.delay):
	case <-broken.Done():
	}
	err := context.Cause(broken)
	a.drain(drain, times.timeout(err))
	_ = operators.Close()
	stop()
	parts.Wait()
	return err
}

// start starts all parts. They run until ctx ends; servers run until they are closed. If a part fails, start calls
// fail with its error.
func (a *app) start(ctx context.Context, fail func(error), clients, operators *http.Server) *sync.WaitGroup {
	parts := &sync.WaitGroup{}
	run := func(name string, part func() error) {
		parts.Go(func() {
			if err := part(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				fail(fmt.Errorf("%s: %w", name, err))
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

// drain gives requests the time timeout to end, and cuts those that do not.
func (a *app) drain(drain *serve.Drain, timeout time.Duration) {
	start := time.Now()
	if a.ports.connect != nil {
		a.ports.connect.shutdown()
	}
	switch cut, clean := drain.End(timeout); {
	case clean:
		a.log.Info("drained: all requests have ended", "after", time.Since(start).Round(time.Millisecond))
	case cut > 0:
		a.log.Warn("requests were cut, which had not ended in time", "requests", cut, "timeout", timeout)
	default:
		a.log.Warn("connections were cut, on which requests were still coming in, or answers going out", "timeout", timeout)
	}
}
