package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/telemetry"
)

// untilSignal returns a context that SIGINT or SIGTERM ends. A second signal ends the process at once.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // after the first signal, signals have their default effect again
	return ctx, stop
}

// run makes all parts, and serves until ctx ends. It returns when the shutdown is over. The log goes to stderr.
func (o *options) run(ctx context.Context, stderr io.Writer) error {
	log := telemetry.NewLogger(stderr, o.telemetry.logFormat, o.telemetry.level)
	o.cache.tuneMemory(log)
	// At level debug the log also has what Kubernetes' libraries write, with credentials masked.
	klog.SetSlogLogger(telemetry.ForLibraries(log))

	setPingEnv() // before client-go makes connections
	config, err := o.upstream.clientConfig()
	if err != nil {
		return err
	}
	api, err := o.newAPIServer(config, log)
	if err != nil {
		return err
	}
	ins, err := newInstruments(ctx, log)
	if err != nil {
		return err
	}
	defer ins.close(log)
	p, err := o.openPorts(api.transports.URL(), ins.observer, log)
	if err != nil {
		return err
	}
	a, err := o.assemble(api, p, ins, log)
	if err != nil {
		return err
	}
	defer a.close()
	log.Info("serving", "address", p.clients.Addr().String(), "admin", p.admin.Addr().String(),
		"upstream", api.ownConfig.Host, "version", version())
	return a.serve(ctx, o.serving.shutdownDelay, o.serving.drainTimeout)
}

// serve runs all parts until ctx ends or a part fails. Then it shuts down, and returns the first failure, if there was one. A
// shutdown has three steps:
//
//  1. /readyz fails, so that load balancers send no more clients. For the time of delay, requests are still served, but new
//     watches are forwarded, and answers close their connections. This step ends early if a part fails or has failed.
//  2. Watches are ended, and other requests have up to timeout to end.
//  3. The admin port closes, and the other parts stop.
func (a *app) serve(ctx context.Context, delay, timeout time.Duration) error {
	// Parts outlive ctx, since changes of the cluster must be noticed until the last answer is written.
	partsCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	mainServer := serve.New(a.handler, a.ports.certificates.TLS(), a.log)
	drain := serve.NewDrain(mainServer, a.endWatches)
	adminServer := serve.New(a.adminPort, nil, a.log)
	parts, partFailed := a.start(partsCtx, mainServer, adminServer)

	select {
	case <-ctx.Done():
	case <-partFailed:
	}
	a.draining.Store(true) // /readyz fails from now on
	a.log.Info("stopping", "delay", delay, "timeout", timeout)
	select {
	case <-time.After(delay):
	case <-partFailed:
	}
	a.endRequests(drain, timeout)
	_ = adminServer.Close() // health checks were answered while requests ended
	stop()
	return parts.Wait()
}

// endWatches begins to end all watches, spread over a period.
func (a *app) endWatches(period time.Duration) {
	a.cache.collections.EndWatches(period)
	a.forward.EndWatches(period)
}

// start starts all parts, each in its own goroutine. Servers run until they are closed, and the other parts until ctx ends.
// When a server fails, the channel partFailed is closed, as it is when ctx ends. parts.Wait returns the server's error. The
// other parts go on.
func (a *app) start(
	ctx context.Context, mainServer, adminServer *http.Server,
) (parts *errgroup.Group, partFailed <-chan struct{}) {
	parts, endsAtFailure := errgroup.WithContext(ctx)
	goUntilDone := func(run func(context.Context)) {
		parts.Go(func() error {
			run(ctx)
			return nil
		})
	}
	goServe := func(name string, serve func() error) {
		parts.Go(func() error {
			if err := serve(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	goUntilDone(func(ctx context.Context) { a.api.transports.Run(ctx, a.log) })
	goUntilDone(a.api.health.Run)
	goUntilDone(a.cache.cluster.Run)
	goUntilDone(a.cache.warmup.Run)
	goUntilDone(a.ports.certificates.Run)
	if connect := a.ports.connect; connect != nil {
		goServe("serving CONNECT", connect.serve)
		goServe("serving tunnels", func() error { return mainServer.Serve(connect.tunnels) })
	}
	goServe("serving clients", func() error { return mainServer.ServeTLS(a.ports.clients, "", "") })
	goServe("serving health checks", func() error { return adminServer.Serve(a.ports.admin) })
	return parts, endsAtFailure.Done()
}

// endRequests waits until all requests have ended, and cuts those that are still running after timeout.
func (a *app) endRequests(drain *serve.Drain, timeout time.Duration) {
	start := time.Now()
	if a.ports.connect != nil {
		a.ports.connect.shutdown()
	}
	cut, clean := drain.Shutdown(timeout)
	switch {
	case clean:
		a.log.Info("drained: all requests have ended", "after", time.Since(start).Round(time.Millisecond))
	case cut > 0:
		a.log.Warn("requests that had not ended in time were cut", "requests", cut, "timeout", timeout)
	default: // the handlers have returned, but their connections were busy
		a.log.Warn("connections were cut, on which requests were still coming in, or answers going out", "timeout", timeout)
	}
}
