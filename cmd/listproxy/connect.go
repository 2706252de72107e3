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

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/server"
)

// connectOptions say whether clients may have listproxy as their proxy-url, and by which names they
// then know the API server.
type connectOptions struct {
	port      int // -1: none
	plain     bool
	hosts     []string
	caFile    string
	caKeyFile string
}

// AddFlags implements optionGroup.
func (o *connectOptions) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.port, "connect-port", o.port,
		"`port` for clients that have listproxy as their proxy-url (CONNECT); 0 any free one, -1 none")
	fs.BoolVar(&o.plain, "connect-plain-http", o.plain,
		"serve --connect-port without TLS; the connection inside the tunnel always has TLS")
	fs.StringSliceVar(&o.hosts, "connect-hosts", o.hosts,
		"more `names` under which clients know the API server: host, for port 443, or host:port;\nthe name in --kubeconfig is always known")
	fs.StringVar(&o.caFile, "connect-ca-file", o.caFile,
		"`file` with the CA, PEM, that signs the certificate inside tunnels; made in --cert-dir if not given")
	fs.StringVar(&o.caKeyFile, "connect-ca-key-file", o.caKeyFile, "`file` with its key, PEM")
}

// Validate implements optionGroup.
func (o *connectOptions) Validate() error {
	switch {
	case o.port < -1 || o.port > 65535:
		return fmt.Errorf("--connect-port %d: a port is a number from 0 (any free one) to 65535, and -1 opens none", o.port)
	case (o.caFile == "") != (o.caKeyFile == ""):
		return errors.New("--connect-ca-file and --connect-ca-key-file go together: give both or none")
	}
	if o.port < 0 {
		for _, f := range []struct {
			name  string
			given bool
		}{
			{"--connect-plain-http", o.plain},
			{"--connect-hosts", len(o.hosts) > 0},
			{"--connect-ca-file", o.caFile != ""},
		} {
			if f.given {
				return fmt.Errorf("%s is for the port for CONNECT, which is not open: give --connect-port", f.name)
			}
		}
		return nil
	}
	// Any upstream will do: only what is given here is of interest.
	if _, err := server.NewTargets(&url.URL{Host: "localhost"}, o.hosts); err != nil {
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
	if o.connect.port < 0 {
		return nil, nil
	}
	targets, err := server.NewTargets(upstream, o.connect.hosts)
	if err != nil {
		return nil, fmt.Errorf("--connect-port, --connect-hosts: %w", err)
	}
	c := &connectListener{plain: o.connect.plain}
	ca := o.connect.caFile
	if ca != "" {
		warnOfKey(log, "--connect-ca-key-file", o.connect.caKeyFile)
		if c.certificate, err = certs.TunnelFromFiles(ca, o.connect.caKeyFile, targets.Hosts(), log); err != nil {
			return nil, fmt.Errorf("--connect-ca-file, --connect-ca-key-file: %w", err)
		}
	} else {
		ca = filepath.Join(o.serving.certDir, "ca.crt")
		if c.certificate, err = certs.TunnelFromDir(o.serving.certDir, targets.Hosts(), log); err != nil {
			return nil, fmt.Errorf("--cert-dir: %w", err)
		}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(o.serving.bindAddress, strconv.Itoa(o.connect.port)))
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
