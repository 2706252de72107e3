package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/listproxy/listproxy/proxy/admin"
	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/server"
	"github.com/listproxy/listproxy/proxy/upstream"
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
	log := telemetry.NewLogger(stderr, telemetry.Format(o.logFormat), o.level)
	o.tuneMemory(log)
	// Messages of Kubernetes' libraries go to the same log: in the same format, masked, and at the
	// level debug.
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
	if plugin := cfg.ExecProvider; plugin != nil {
		// Nobody is there to answer what a plugin asks. One that always asks is refused.
		plugin.StdinUnavailable = true
		plugin.StdinUnavailableMessage = "listproxy's own account needs a plugin that asks nothing"
	}
	return cfg
}

// ending has the times of a graceful shutdown: how long listproxy serves as before while others
// notice, and how long requests may take to end, at most.
type ending struct{ delay, drain time.Duration }

// maxBrokenDrain is how long requests may take to end, at most, if a part of the process has
// failed: the process may no longer work, and another waits to replace it.
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
	// The parts outlive ctx: changes must be noticed until the last answer.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	mainServer := server.New(a.handler, a.tls.Config(a.certificate.Get), a.log)
	drain := server.NewDrain(mainServer, func(within time.Duration) {
		a.forward.EndWatches(within)     // those that are forwarded
		a.collections.EndWatches(within) // those from memory
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
	parts.Go(func() { a.transports.Run(life, a.log) })
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
