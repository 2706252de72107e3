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

// untilSignal returns a context that SIGINT or SIGTERM ends. Then the signals have no handler, so that a second signal
// ends the process at once.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// run serves until ctx ends. Then requests may finish, within --shutdown-timeout. The log goes to stderr.
func (o *options) run(ctx context.Context, stderr io.Writer) error {
	log := o.telemetry.logger(stderr)
	o.cache.tuneMemory(log)
	// Kubernetes' libraries write to the same log, masked, if its level is debug.
	klog.SetSlogLogger(telemetry.Libraries(log))

	setPingEnv() // before client-go makes connections
	config, err := o.upstream.clientConfig()
	if err != nil {
		return err
	}
	api, err := newAPIServer(config, o.callers.clientCA != nil, log)
	if err != nil {
		return err
	}
	instruments, err := newInstruments(ctx, log)
	if err != nil {
		return err
	}
	defer instruments.close(log)
	ports, err := o.listen(api.transports.URL(), instruments.Observer, log)
	if err != nil {
		return err
	}
	app, err := o.assemble(api, ports, instruments, log)
	if err != nil {
		return err
	}
	defer app.close()
	log.Info("serving", "address", ports.clients.Addr().String(), "admin", ports.admin.Addr().String(),
		"upstream", api.ownConfig.Host, "version", version())
	return app.serve(ctx, o.serving.shutdownDelay, o.serving.drainTimeout)
}

// serve runs all parts until ctx ends or a part fails, and returns the failure. When ctx ends, it serves for delay as
// before, so that load balancers notice. Then requests have up to timeout to end.
func (a *app) serve(ctx context.Context, delay, timeout time.Duration) error {
	// Parts outlive ctx: until the last answer is written, changes of the cluster must be noticed.
	partsCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	clients := serve.New(a.handler, a.ports.certificates.TLS(), a.log)
	connContext := clients.ConnContext
	clients.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return auth.WithConnection(connContext(ctx, conn))
	}
	drain := serve.NewDrain(clients, func(spread time.Duration) {
		a.collections.EndWatches(spread) // watches from memory
		a.forward.EndWatches(func(watches int) (time.Duration, time.Duration) {
			return a.collections.PaceEnds(watches, spread)
		})
	})
	adminServer := serve.New(admin.New(a.adminConfig), nil, a.log)
	parts, failures := a.start(partsCtx, clients, adminServer)

	var failure error
	select {
	case <-ctx.Done():
	case failure = <-failures:
	}
	a.draining.Store(true)
	a.log.Info("stopping", "delay", delay, "timeout", timeout)
	if failure == nil { // a failed part cannot serve as before
		select {
		case <-time.After(delay):
		case failure = <-failures:
		}
	}
	a.endRequests(drain, timeout)
	_ = adminServer.Close() // health checks are answered until then
	stop()
	parts.Wait()
	return failure
}

// start starts all parts. They run until ctx ends; servers run until they are closed. parts waits for all of them.
// failures gets the error of the first part that fails.
func (a *app) start(
	ctx context.Context, clients, adminServer *http.Server,
) (parts *sync.WaitGroup, failures <-chan error) {
	parts = &sync.WaitGroup{}
	firstFailure := make(chan error, 1)
	run := func(name string, part func() error) {
		parts.Go(func() {
			if err := part(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				select {
				case firstFailure <- fmt.Errorf("%s: %w", name, err):
				default: // another part has failed before
				}
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
	run("serving health checks", func() error { return adminServer.Serve(a.ports.admin) })
	return parts, firstFailure
}

// endRequests waits until all requests have ended. It aborts requests that are still running after timeout.
func (a *app) endRequests(drain *serve.Drain, timeout time.Duration) {
	start := time.Now()
	if a.ports.connect != nil {
		a.ports.connect.shutdown()
	}
	aborted, clean := drain.End(timeout)
	switch {
	case clean:
		a.log.Info("drained: all requests have ended", "after", time.Since(start).Round(time.Millisecond))
	case aborted > 0:
		a.log.Warn("requests were cut, which had not ended in time", "requests", aborted, "timeout", timeout)
	default:
		a.log.Warn("connections were cut, on which requests were still coming in, or answers going out", "timeout", timeout)
	}
}
