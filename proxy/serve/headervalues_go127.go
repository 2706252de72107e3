//go:build go1.27

package serve

import "net/http"

// allowHeaderValues allows as many header values in a request as kube-apiserver does from 1.38 on. By default net/http
// answers 431 to more than 500. MaxHeaderBytes bounds their bytes.
func allowHeaderValues(server *http.Server) *http.Server {
	server.MaxHeaderValueCount = 16384
	return server
}
