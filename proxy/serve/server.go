package serve

import (
	"context"
	"crypto/tls"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/listproxy/listproxy/proxy/limits"
)

const readHeaderTimeout = 32 * time.Second // kube-apiserver's

// New returns the HTTPS server for clients, with HTTP/1.1 and HTTP/2. The server bounds headers, idle connections, streams
// and their buffers, but not the time of a request or an answer, since watches and uploads take long. It sends no HTTP/2 pings,
// as kube-apiserver sends none, so a client that was stopped for a while keeps its streams. TCP keep-alive finds clients that are
// gone.
//
// Call ServeTLS(listener, "", "") for the listener of clients (the certificate is in tlsConfig), and Serve for [Tunnels].
func New(handler http.Handler, tlsConfig *tls.Config, log *slog.Logger) *http.Server {
	return raiseHeaderValueLimit(&http.Server{
		Handler:           beginRequests(handler),
		TLSConfig:         tlsConfig,
		ConnContext:       connectionContext,
		ConnState:         limits.NoteState,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    64 << 10, // as in other proxies; kube-apiserver takes 1 MiB
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250,
			// These bound the memory of uploads that the upstream does not read. One such upload must not stop the others on
			// its connection, so the connection has room for sixteen.
			MaxReceiveBufferPerStream:     128 << 10,
			MaxReceiveBufferPerConnection: 2 << 20,
		},
		ErrorLog: serverErrorLog(log),
	})
}

// connectionKey is the context key of a request's connection.
type connectionKey struct{}

// connectionContext adds the connection to the context of its requests.
func connectionContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// beginRequests returns a handler that prepares each request, and calls next.
func beginRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connectionKey{}).(net.Conn); ok && !limits.IsOpen(conn) {
			// The connection was just closed for a new one. Without an answer, the client may send the request again.
			panic(http.ErrAbortHandler)
		}
		growStack()
		next.ServeHTTP(w, r)
	})
}

// growStack grows the goroutine's stack to the 8 KiB that a request needs, by a variable that does not fit into 4 KiB. Over
// HTTP/2 net/http starts a goroutine for each request. Without growStack, its stack would grow twice, deep inside the handlers,
// and all frames would be copied each time.
//
//go:noinline
func growStack() {
	var room [4 << 10]byte
	runtime.KeepAlive(&room)
}

// serverErrorLog returns a logger for net/http's own messages. They are warnings, except those about failed handshakes, which
// every port scan and TCP health check causes.
func serverErrorLog(logger *slog.Logger) *log.Logger {
	return log.New(lineFunc(func(line string) {
		level := slog.LevelWarn
		if strings.HasPrefix(line, "http: TLS handshake error") {
			level = slog.LevelDebug
		}
		logger.Log(context.Background(), level, "server", "message", line)
	}), "", 0)
}

// lineFunc is an [io.Writer] for a [log.Logger], which writes a whole line at a time.
type lineFunc func(line string)

func (f lineFunc) Write(line []byte) (int, error) {
	f(strings.TrimSpace(string(line)))
	return len(line), nil
}
