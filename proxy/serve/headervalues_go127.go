//go:build go1.27

package serve

import "net/http"

// takeHeaderValues lets a request have as many header values as at kube-apiserver from 1.38 on: net/http
// itself refuses more than 500 with 431. Their bytes are bounded by MaxHeaderBytes.
func takeHeaderValues(server *http.Server) *http.Server {
	server.MaxHeaderValueCount = 16384
	return server
}
