package main

import (
	"context"
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

// serving returns the certificate that clients see at both ports.
func (o *options) serving(log *slog.Logger) (*certs.Certificate, error) {
	if o.certFile != "" {
		warnOfKey(log, "--tls-private-key-file", o.keyFile)
		c, err := certs.ServingFromFiles(o.certFile, o.keyFile, log)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file, --tls-private-key-file: %w", err)
		}
		return c, nil
	}
	c, ca, err := certs.ServingFromDir(o.certDir, o.certHosts, log)
	if err != nil {
		return nil, fmt.Errorf("--cert-dir, --cert-hosts: %w", err)
	}
	warnOfKey(log, "--cert-dir", filepath.Join(o.certDir, "ca.key"))
	log.Info("serving with a certificate made here: clients need its CA", "ca", ca)
	return c, nil
}

// connectDoor is the second way in, if --connect-port opens it.
type connectDoor struct {
	listener    net.Listener
	tunnels     *server.Tunnels
	server      *http.Server
	certificate *certs.Certificate
	plain       bool
}

// openConnect opens the port for CONNECT, or returns nil if there is to be none.
func (o *options) openConnect(upstream *url.URL, serving *certs.Certificate, observer *observe.Observer, log *slog.Logger) (*connectDoor, error) {
	if o.connectPort < 0 {
		return nil, nil //nolint:nilnil // no door is no error
	}
	targets, err := server.NewTargets(upstream, o.connectHosts)
	if err != nil {
		return nil, fmt.Errorf("--connect-port, --connect-hosts: %w", err)
	}
	d := &connectDoor{plain: o.connectPlain}
	ca := o.connectCAFile
	if ca != "" {
		warnOfKey(log, "--connect-ca-key-file", o.connectCAKeyFile)
		if d.certificate, err = certs.TunnelFromFiles(ca, o.connectCAKeyFile, targets.Hosts(), log); err != nil {
			return nil, fmt.Errorf("--connect-ca-file, --connect-ca-key-file: %w", err)
		}
	} else {
		ca = filepath.Join(o.certDir, "ca.crt")
		if d.certificate, err = certs.TunnelFromDir(o.certDir, targets.Hosts(), log); err != nil {
			return nil, fmt.Errorf("--cert-dir: %w", err)
		}
	}
	d.listener, err = net.Listen("tcp", net.JoinHostPort(o.bindAddress, strconv.Itoa(o.connectPort)))
	if err != nil {
		return nil, fmt.Errorf("serving CONNECT (--bind-address, --connect-port): %w", err)
	}
	d.tunnels = server.NewTunnels(targets, o.tls.Config(d.certificate.Get))
	d.server = server.NewConnect(d.tunnels, o.tls.ConnectConfig(serving.Get), observer, log)
	log.Info("serving CONNECT", "address", d.listener.Addr().String(), "tls", !d.plain, "targets", targets.String(), "ca", ca)
	return d, nil
}

// serve takes CONNECT until the door is closed.
func (d *connectDoor) serve() error {
	if d.plain {
		return d.server.Serve(d.listener)
	}
	return d.server.ServeTLS(d.listener, "", "")
}

// shut ends the taking of CONNECT. Tunnels that are open are the main server's to end, and so are
// those that are being opened: for these there is a moment before it takes no more.
func (d *connectDoor) shut() {
	const moment = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	_ = d.server.Shutdown(ctx)
	_ = d.server.Close()
}

// warnOfKey says if everybody on the machine can read a private key. It is used all the same: a
// mounted Secret is like that unless its volume has a defaultMode, in a container of one user.
func warnOfKey(log *slog.Logger, flag, path string) {
	if certs.KeyReadableByOthers(path) {
		log.Warn("a private key is readable by everybody on this machine: take that away (chmod o-r, defaultMode of a Secret's volume)", "flag", flag, "file", path)
	}
}
