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

// ports has the open ports, bounds on their connections, and the serving certificates.
type ports struct {
	clients           net.Listener
	connect           *connectPort // nil if --connect-port is -1
	admin             net.Listener
	clientConnections *limits.Connections // bounds the connections of clients and connect together
	adminConnections  *limits.Connections // bounds those of admin
	certificates      *serve.Certificates // of clients and connect; admin is served without TLS
}

// maxAdminConnections bounds the connections to the admin port. Probes and scrapers need only a few.
const maxAdminConnections = 512

// openPorts opens the ports and reads the serving certificates. A server that serves a port also closes it. After an error
// nothing is closed, since the process ends.
func (o *options) openPorts(upstream *url.URL, observer *observe.Observer, log *slog.Logger) (*ports, error) {
	targets, err := o.connect.targets(upstream)
	if err != nil {
		return nil, err
	}
	p := &ports{
		clientConnections: limits.NewConnections(connectionBound(currentMemoryLimit())),
		adminConnections:  limits.NewConnections(maxAdminConnections),
	}
	clientListener, err := o.serving.listen(o.serving.securePort)
	if err != nil {
		return nil, fmt.Errorf("serving clients (--bind-address, --secure-port): %w", err)
	}
	p.clients = p.clientConnections.Listen(clientListener)
	adminListener, err := net.Listen("tcp", o.admin.bindAddress)
	if err != nil {
		return nil, fmt.Errorf("serving health checks (--admin-bind-address): %w", err)
	}
	p.admin = p.adminConnections.Listen(adminListener)
	p.certificates, err = o.serving.loadCertificates(targets.Hosts(), o.callers.clientCA, log)
	if err != nil {
		return nil, err
	}
	p.connect, err = o.openConnect(targets, p, observer, log)
	return p, err
}
