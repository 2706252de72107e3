package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"runtime/debug"

	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/serve"
)

// ports has the open listeners, the bounds on their connections, and the serving certificate.
type ports struct {
	clients, admin          net.Listener
	connect                 *connectListener // nil if it is not opened
	clientBound, adminBound *limits.Connections
	certificates            *serve.Certificates
}

// adminConnections is the number of connections that the admin port takes: a few probes and scrapers need it.
const adminConnections = 512

// listen opens the ports. Its caller must close them.
func (o *options) listen(upstream *url.URL, observer *observe.Observer, log *slog.Logger) (_ *ports, err error) {
	p := &ports{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	targets, err := o.connect.targets(upstream)
	if err != nil {
		return nil, err
	}
	p.clientBound = limits.NewConnections(connectionBound(debug.SetMemoryLimit(-1)))
	p.adminBound = limits.NewConnections(adminConnections)
	clients, err := o.serving.listen(o.serving.port)
	if err != nil {
		return nil, fmt.Errorf("serving clients (--bind-address, --secure-port): %w", err)
	}
	p.clients = p.clientBound.Listen(clients)
	adminListener, err := net.Listen("tcp", o.admin.bindAddress)
	if err != nil {
		return nil, fmt.Errorf("serving health checks (--admin-bind-address): %w", err)
	}
	p.admin = p.adminBound.Listen(adminListener)
	if p.certificates, err = o.serving.certificates(targets.Hosts(), o.callers.clientCA, log); err != nil {
		return nil, err
	}
	p.connect, err = o.openConnect(targets, p, observer, log)
	return p, err
}

// close closes the listeners that are open.
func (p *ports) close() {
	for _, l := range []net.Listener{p.clients, p.admin} {
		if l != nil {
			_ = l.Close()
		}
	}
	if p.connect != nil {
		_ = p.connect.listener.Close()
	}
}

// connections returns the connections of each port for metrics, by the port's name.
func (p *ports) connections() map[string]*limits.Connections {
	return map[string]*limits.Connections{"clients": p.clientBound, "admin": p.adminBound}
}
