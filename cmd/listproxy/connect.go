package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/server"
)

// checkConnect checks the flags of the port for CONNECT.
func (o *options) checkConnect() error {
	switch {
	case o.connectPort < -1 || o.connectPort > 65535:
		return fmt.Errorf("--connect-port %d: a port is a number from 0 (any free one) to 65535, and -1 opens none", o.connectPort)
	case (o.connectCAFile == "") != (o.connectCAKeyFile == ""):
		return errors.New("--connect-ca-file and --connect-ca-key-file go together: give both or none")
	case o.connectPort > 0 && o.connectPort == o.securePort:
		return fmt.Errorf("--connect-port %d is --secure-port too: the port for CONNECT is one of its own", o.connectPort)
	}
	if o.connectPort < 0 {
		for _, f := range []struct {
			name  string
			given bool
		}{
			{"--connect-plain-http", o.connectPlain},
			{"--connect-hosts", len(o.connectHosts) > 0},
			{"--connect-ca-file", o.connectCAFile != ""},
		} {
			if f.given {
				return fmt.Errorf("%s is for the port for CONNECT, which is not open: give --connect-port", f.name)
			}
		}
		return nil
	}
	// Any upstream will do: only what is given here is of interest.
	if _, err := server.NewTargets(&url.URL{Host: "localhost"}, o.connectHosts); err != nil {
		return fmt.Errorf("--connect-hosts %w", err)
	}
	return nil
}

// connectListener is the port for CONNECT, if --connect-port opens it.
type connectListener struct {
	listener    net.Listener
	tunnels     *server.Tunnels
	server      *http.Server
	certificate *certs.Certificate
	plain       bool
}

// openConnect opens the port for CONNECT, which shows the certificate of p and shares its bound on
// connections. It returns nil if there is to be none.
func (o *options) openConnect(upstream *url.URL, p *ports, observer *observe.Observer, log *slog.Logger) (*connectListener, error) {
	if o.connectPort < 0 {
		return nil, nil
	}
	targets, err := server.NewTargets(upstream, o.connectHosts)
	if err != nil {
		return nil, fmt.Errorf("--connect-port, --connect-hosts: %w", err)
	}
	c := &connectListener{plain: o.connectPlain}
	ca := o.connectCAFile
	if ca != "" {
		warnOfKey(log, "--connect-ca-key-file", o.connectCAKeyFile)
		if c.certificate, err = certs.TunnelFromFiles(ca, o.connectCAKeyFile, targets.Hosts(), log); err != nil {
			return nil, fmt.Errorf("--connect-ca-file, --connect-ca-key-file: %w", err)
		}
	} else {
		ca = filepath.Join(o.certDir, "ca.crt")
		if c.certificate, err = certs.TunnelFromDir(o.certDir, targets.Hosts(), log); err != nil {
			return nil, fmt.Errorf("--cert-dir: %w", err)
		}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(o.bindAddress, strconv.Itoa(o.connectPort)))
	if err != nil {
		return nil, fmt.Errorf("serving CONNECT (--bind-address, --connect-port): %w", err)
	}
	c.listener = p.clientBound.Listen(listener)
	c.tunnels = server.NewTunnels(targets, p.tls.Config(c.certificate.Get))
	c.server = server.NewConnect(c.tunnels, p.tls.ConnectConfig(p.certificate.Get), observer, log)
	log.Info("serving CONNECT", "address", c.listener.Addr().String(), "tls", !c.plain, "targets", targets.String(), "ca", ca)
	return c, nil
}

// serve takes CONNECT until the listener is closed.
func (c *connectListener) serve() error {
	if c.plain {
		return c.server.Serve(c.listener)
	}
	return c.server.ServeTLS(c.listener, "", "")
}

// shut ends the taking of CONNECT. Tunnels that are open are the main server's to end, and so are
// those that are being opened: for these there is a moment before it takes no more.
func (c *connectListener) shut() {
	const moment = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	_ = c.server.Shutdown(ctx)
	_ = c.server.Close()
}
