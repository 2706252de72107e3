//go:build !go1.27

package serve

import "net/http"

// raiseHeaderValueLimit returns server. Before Go 1.27, net/http does not limit the number of header values.
func raiseHeaderValueLimit(server *http.Server) *http.Server { return server }
