package serve

import (
	"context"
	"crypto/tls"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/listproxy/listproxy/proxy/limits"
)

const readHeaderTimeout = 32 * time.Second // as in kube-apiserver

// New returns the HTTPS server for clients, with HTTP/1.1 and HTTP/2. The server bounds headers, idle connections, streams and
// their buffers, but not the time of a request or an answer, since watches and uploads take long. Like kube-apiserver, it sends
// no HTTP/2 pings, so a client that was stopped for a while keeps its streams. TCP keep-alive finds clients that are gone.
//
// The server has two listeners. Call its ServeTLS(listener, "", "") with the listener of clients; tlsConfig has the
// certificate. Call its Serve with the [Tunnels], whose connections already have TLS.
func New(handler http.Handler, tlsConfig *tls.Config, log *slog.Logger) *http.Server {
	return raiseHeaderValueLimit(&http.Server{
		Handler:           withOpenConnection(handler),
		TLSConfig:         tlsConfig,
		ConnContext:       connectionContext,
		ConnState:         limits.NoteState,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    64 << 10, // as in other proxies; kube-apiserver takes 1 MiB
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250,
			// The two buffers bound the memory of uploads that the upstream does not read. One such upload must not stop the
			// others on its connection, so the connection has room for sixteen.
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

// withOpenConnection returns a handler that passes requests on to next. It aborts a request whose connection was closed to make
// room for another connection. It also prepares the goroutine of the request (see growStack).
func withOpenConnection(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connectionKey{}).(net.Conn); ok && !limits.IsOpen(conn) {
			// Since there is no answer, the client may send the request again.
			panic(http.ErrAbortHandler)
		}
		growStack()
		next.ServeHTTP(w, r)
	})
}

// growStack grows the goroutine's stack to the 8 KiB that a request needs, by a variable that does not fit into 4 KiB. Over
// HTTP/2 net/http starts a goroutine for each request. By itself, the stack would grow twice, deep inside the handlers, and all
// frames would be copied each time.
//
//go:noinline
func growStack() {
	var room [4 << 10]byte
	runtime.KeepAlive(&room)
}

// serverErrorLog returns a logger for net/http's own messages. They are warnings, except those about failed handshakes, which
// every port scan and TCP health check causes.
func serverErrorLog(log *slog.Logger) *stdlog.Logger {
	return stdlog.New(lineFunc(func(line string) {
		level := slog.LevelWarn
		if strings.HasPrefix(line, "http: TLS handshake error") {
			level = slog.LevelDebug
		}
		log.Log(context.Background(), level, "server", "message", line)
	}), "", 0)
}

// lineFunc is an [io.Writer] for a [stdlog.Logger], which writes a whole line at a time.
type lineFunc func(line string)

func (f lineFunc) Write(line []byte) (int, error) {
	f(strings.TrimSpace(string(line)))
	return len(line), nil
}
