package attacks

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
)

// followerHTTP1 is an innocent request without credentials, sent after each attack. Its answer shows where a server believes
// that the attack ended, and whether the attack's identity stays with the connection.
const followerHTTP1 = "GET " + podsOfA + " HTTP/1.1\r\nHost: {host}\r\nUser-Agent: follower\r\n" +
	"Audit-Id: {id}.follower\r\nConnection: close\r\n\r\n"

// Values of outcome.End, which says how a connection ended.
const (
	hangs       = "hangs"     // it stayed open, without an answer
	notHTTP     = "no answer" // what came is not an answer of HTTP/1.1
	closedEarly = "closed"    // an HTTP/2 connection was closed before every stream was done
)

// bodyBreaks is the answer.Reset of a body that broke off.
const bodyBreaks = "cut"

// sendHTTP1 writes the attack and the follower on one connection, and reads to the connection's end.
func sendHTTP1(ctx context.Context, server endpoint, who login, a attack, fill *strings.Replacer) (outcome, error) {
	conn, err := server.dial(ctx, http1, who.certificate)
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = conn.Close() }()
	written := make(chan struct{})
	go func() {
		defer close(written)
		// An error is ignored: a server that refuses the attack may stop reading early.
		_, _ = io.WriteString(conn, fill.Replace(a.requestHTTP1()+followerHTTP1))
	}()
	method, _, _ := strings.Cut(a.requestHTTP1(), " ")
	out := readHTTP1(conn, method)
	_ = conn.Close()
	<-written
	return out, nil
}

// readHTTP1 reads all answers. method is that of the attack: it decides whether the first answer has a body. The requests after
// the attack are GETs.
func readHTTP1(conn *tls.Conn, method string) outcome {
	var out outcome
	in := bufio.NewReader(conn)
	for {
		if _, err := in.Peek(1); err != nil {
			out.End = ending(err)
			return out
		}
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			out.End = notHTTP
			return out
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		got := answer{Status: res.StatusCode, Header: res.Header, Body: string(body), Trailer: res.Trailer}
		if err != nil {
			got.Reset = bodyBreaks
		}
		out.Answers = append(out.Answers, got)
		switch {
		case res.StatusCode == http.StatusSwitchingProtocols:
			return out // what follows is not HTTP
		case res.StatusCode >= http.StatusOK: // after a 1xx, the answer to the same request is still to come
			method = http.MethodGet
		}
	}
}

// ending returns hangs if err says that a deadline has passed. For all other errors it returns "": the server has closed or
// reset the connection.
func ending(err error) string {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return hangs
	}
	return ""
}
