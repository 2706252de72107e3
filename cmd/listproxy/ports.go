package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"

	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/serve"
)

// ports has the open listeners, the bounds on their connections, and the serving certificates.
type ports struct {
	clients, admin          net.Listener
	connect                 *connectListener    // nil if --connect-port is -1
	clientBound, adminBound *limits.Connections // clientBound also counts the connections of connect
	certificates            *serve.Certificates
}

// adminConnections is the largest number of connections to the admin port. Probes and scrapers need only a few.
const adminConnections = 512

// listen opens the ports. Their servers close them. After an error, ports that were opened stay open: the process ends.
func (o *options) listen(upstream *url.URL, observer *observe.Observer, log *slog.Logger) (*ports, error) {
	targets, err := o.connect.targets(upstream)
	if err != nil {
		return nil, err
	}
	p := &ports{
		clientBound: limits.NewConnections(connectionBound(currentMemoryLimit())),
		adminBound:  limits.NewConnections(adminConnections),
	}
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

// connections returns the bounds, with their connections, by the name of the port in metrics.
func (p *ports) connections() map[string]*limits.Connections {
	return map[string]*limits.Connections{"clients": p.clientBound, "admin": p.adminBound}
}
