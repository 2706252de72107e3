package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/serve"
)

// connectOptions say whether clients may have listproxy as their proxy-url, and by which names they
// then know the API server.
type connectOptions struct {
	port  int // -1: none
	hosts []string
}

// AddFlags implements optionGroup.
func (o *connectOptions) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.port, "connect-port", o.port,
		"`port` for clients that have listproxy as their proxy-url (CONNECT); 0 any free one, -1 none")
	fs.StringSliceVar(&o.hosts, "connect-hosts", o.hosts,
		"more `names` under which clients know the API server: host, for port 443, or host:port; "+
			"the name in --kubeconfig is always known. The serving certificate must be for them")
}

// Validate implements optionGroup.
func (o *connectOptions) Validate() error {
	switch {
	case o.port < -1 || o.port > 65535:
		return fmt.Errorf("--connect-port %d: a port is a number from 0 (any free one) to 65535, and -1 opens none", o.port)
	case o.port < 0 && len(o.hosts) > 0:
		return errors.New("--connect-hosts is for the port for CONNECT, which is not open: give --connect-port")
	}
	// Any upstream will do: only what is given here is of interest.
	if _, err := serve.NewTargets(&url.URL{Host: "localhost"}, o.hosts); err != nil {
		return fmt.Errorf("--connect-hosts %w", err)
	}
	return nil
}

// targets are the names of the API server in a CONNECT; none if there is no port for it.
func (o *connectOptions) targets(upstream *url.URL) (serve.Targets, error) {
	if o.port < 0 {
		return serve.Targets{}, nil
	}
	targets, err := serve.NewTargets(upstream, o.hosts)
	if err != nil {
		return targets, fmt.Errorf("--connect-port, --connect-hosts: %w", err)
	}
	return targets, nil
}

// connectListener is the port for CONNECT, if --connect-port opens it.
type connectListener struct {
	listener net.Listener
	tunnels  *serve.Tunnels
	server   *http.Server
}

// openConnect opens the port for CONNECT, which shows the certificate of p and shares its bound on
// connections. It returns nil if there is to be none.
func (o *options) openConnect(targets serve.Targets, p *ports, observer *observe.Observer, log *slog.Logger) (*connectListener, error) {
	if o.connect.port < 0 {
		return nil, nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(o.serving.bindAddress, strconv.Itoa(o.connect.port)))
	if err != nil {
		return nil, fmt.Errorf("serving CONNECT (--bind-address, --connect-port): %w", err)
	}
	c := &connectListener{listener: p.clientBound.Listen(listener), tunnels: serve.NewTunnels(targets, p.certificates.TLS())}
	c.server = serve.NewConnect(c.tunnels, p.certificates.ConnectTLS(), observer, log)
	log.Info("serving CONNECT", "address", c.listener.Addr().String(), "targets", targets.String())
	if lacking := p.certificates.Lacking(targets.Hosts()); len(lacking) > 0 {
		log.Warn("the serving certificate is not for all names of the API server: clients that use another one refuse it inside "+
			"tunnels (docs/operate.md#two-ways-in)", "missing", strings.Join(lacking, ", "))
	}
	return c, nil
}

// serve takes CONNECT until the listener is closed.
func (c *connectListener) serve() error { return c.server.ServeTLS(c.listener, "", "") }

// shut ends the taking of CONNECT. Tunnels that are open are the main server's to end, and so are
// those that are being opened: for these there is a moment before it takes no more.
func (c *connectListener) shut() {
	const moment = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	_ = c.server.Shutdown(ctx)
	_ = c.server.Close()
}
