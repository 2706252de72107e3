//go:build !go1.27

package serve

import "net/http"

// allowHeaderValues has nothing to do: before Go 1.27, net/http does not count the values of headers.
func allowHeaderValues(server *http.Server) *http.Server { return server }
