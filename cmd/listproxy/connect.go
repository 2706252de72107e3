package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/serve"
)

// connectOptions are the flags of the port for CONNECT. Clients that have listproxy as their proxy-url connect to this port,
// and ask for a tunnel to the API server by one of its names.
type connectOptions struct {
	port  int      // noPort if no port is opened
	hosts []string // names of the API server besides the one in --kubeconfig
}

const noPort = -1

// AddFlags implements optionGroup.
func (o *connectOptions) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.port, "connect-port", noPort,
		"`port` for clients that have listproxy as their proxy-url (CONNECT); 0 any free one, -1 none")
	fs.StringSliceVar(&o.hosts, "connect-hosts", nil,
		"more `names` under which clients know the API server: host, for port 443, or host:port; "+
			"the name in --kubeconfig is always known. The serving certificate must be for them")
}

// Validate implements optionGroup.
func (o *connectOptions) Validate() error {
	if o.port < noPort || o.port > 65535 {
		return fmt.Errorf("--connect-port %d: a port is a number from 0 (any free one) to 65535, and -1 opens none", o.port)
	}
	if o.port == noPort && len(o.hosts) > 0 {
		return errors.New("--connect-hosts is for the port for CONNECT, which is not open: give --connect-port")
	}
	return nil
}

// targets returns the hosts to which a CONNECT may lead: the names of the API server, or none without a port for CONNECT.
func (o *connectOptions) targets(upstream *url.URL) (serve.Targets, error) {
	if o.port == noPort {
		return serve.Targets{}, nil
	}
	targets, err := serve.NewTargets(upstream, o.hosts)
	if err != nil {
		return serve.Targets{}, fmt.Errorf("--connect-port, --connect-hosts: %w", err)
	}
	return targets, nil
}

// connectPort is the open port for CONNECT. server answers the CONNECTs that come on listener. When a CONNECT asks for one of
// the API server's names, its connection becomes a tunnel. The main server accepts the tunnel from tunnels, like any other
// connection.
type connectPort struct {
	listener net.Listener
	server   *http.Server
	tunnels  *serve.Tunnels // a [net.Listener], from which the main server accepts
}

// openConnect opens the port for CONNECT, or returns nil, nil if --connect-port is -1. opened has the certificates, which this
// port uses too, and the bound on connections, which this port and the main port share.
func (o *options) openConnect(
	targets serve.Targets, opened *ports, observer *observe.Observer, log *slog.Logger,
) (*connectPort, error) {
	if o.connect.port == noPort {
		return nil, nil
	}
	listener, err := o.serving.listen(uint16(o.connect.port)) // #nosec G115 -- Validate has checked the range
	if err != nil {
		return nil, fmt.Errorf("serving CONNECT (--bind-address, --connect-port): %w", err)
	}
	c := &connectPort{
		listener: opened.clientConnections.Listen(listener),
		tunnels:  serve.NewTunnels(targets, opened.certificates.TLS()),
	}
	c.server = serve.NewConnectServer(c.tunnels, opened.certificates.ConnectTLS(), observer, log)
	log.Info("serving CONNECT", "address", c.listener.Addr().String(), "targets", targets.String())
	if missing := opened.certificates.MissingHosts(targets.Hosts()); len(missing) > 0 {
		log.Warn("the serving certificate is not for all names of the API server: clients that use a missing one refuse the "+
			"certificate (docs/operate.md#two-ways-in)", "missing", strings.Join(missing, ", "))
	}
	return c, nil
}

// serve answers CONNECTs until shutdown is called, and then returns [http.ErrServerClosed].
func (c *connectPort) serve() error { return c.server.ServeTLS(c.listener, "", "") }

// shutdown stops the server. CONNECTs that are being answered have openingTimeout to become tunnels. Open tunnels go on until
// the main server shuts down.
func (c *connectPort) shutdown() {
	const openingTimeout = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), openingTimeout)
	defer cancel()
	_ = c.server.Shutdown(ctx)
	_ = c.server.Close() // the connections of CONNECTs that were not answered in time
}
