package upstream

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"
)

// unprovenPing replaces sendPingTimeout on connections for one request. net/http (Go 1.26) keeps
// the memory of an ended HTTP/2 connection until its next ping would have been due, and a caller
// with made-up tokens ends hundreds of connections a second.
const unprovenPing = 2 * time.Second

// singleUse sends each request on a connection of its own, which is opened for it and ends with it.
//
// An [http.Transport] without keep-alives is not enough: it continues the handshake for a request
// whose client has gone, and lets one request use the HTTP/2 connection that was opened for
// another, which then opens a second one.
type singleUse struct{ *http.Transport }

// newSingleUse makes t open a connection for each request. t speaks HTTP/2 already.
func newSingleUse(t *http.Transport) singleUse {
	t.DisableKeepAlives = true
	t.IdleConnTimeout = unprovenPing // net/http keeps what has ended for a part of this too
	t.HTTP2.SendPingTimeout = unprovenPing
	t.HTTP2.PingTimeout = sendPingTimeout + pingTimeout - unprovenPing
	return singleUse{t}
}

// RoundTrip implements [http.RoundTripper].
func (s singleUse) RoundTrip(r *http.Request) (*http.Response, error) {
	conn, err := s.open(r.Context(), r.URL)
	if err != nil {
		closeBody(r)
		return nil, err
	}
	res, err := conn.RoundTrip(r)
	if err != nil {
		closeBody(r)
		_ = conn.Close()
		return nil, err
	}
	res.Body = &singleUseBody{res.Body, conn}
	return res, nil
}

// open opens a connection, unless ctx ends before.
func (s singleUse) open(ctx context.Context, to *url.URL) (*http.ClientConn, error) {
	return s.NewClientConn(ctx, to.Scheme, hostPort(to))
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// singleUseBody is the body of an answer, with the connection that it comes on.
type singleUseBody struct {
	io.ReadCloser
	conn *http.ClientConn
}

// Close ends both.
func (b *singleUseBody) Close() error {
	err := b.ReadCloser.Close()
	_ = b.conn.Close()
	return err
}
