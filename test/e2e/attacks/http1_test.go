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

// follower is the innocent request behind each attack.
const followerHTTP1 = "GET " + podsOfA + " HTTP/1.1\r\nHost: {host}\r\nUser-Agent: follower\r\n" +
	"Audit-Id: {id}.follower\r\nConnection: close\r\n\r\n"

// sendHTTP1 writes the attack and the follower, and reads to the connection's end.
func sendHTTP1(ctx context.Context, d door, who login, a attack, fill *strings.Replacer) (outcome, error) {
	conn, err := d.dial(ctx, http1, who.certificate)
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = conn.Close() }()
	written := make(chan struct{})
	go func() {
		defer close(written)
		// A server that has heard enough may not take all of it.
		_, _ = io.WriteString(conn, fill.Replace(a.http1()+followerHTTP1))
	}()
	method, _, _ := strings.Cut(a.http1(), " ")
	out := readHTTP1(conn, method)
	_ = conn.Close()
	<-written
	return out, nil
}

// readHTTP1 reads answers, the first of which is to a method.
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
			out.End = "no answer"
			return out
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		got := answer{Status: res.StatusCode, Header: res.Header, Body: string(body), Trailer: res.Trailer}
		if err != nil {
			got.Reset = "cut"
		}
		out.Answers = append(out.Answers, got)
		switch {
		case res.StatusCode == http.StatusSwitchingProtocols:
			return out
		case res.StatusCode >= http.StatusOK:
			method = http.MethodGet
		}
	}
}

// ending tells a server that hangs from one that has closed the connection, in whichever way.
func ending(err error) string {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "hangs"
	}
	return ""
}
