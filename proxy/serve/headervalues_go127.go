//go:build go1.27

package serve

import "net/http"

// maxHeaderValues is the number of header values that kube-apiserver allows in a request from 1.38 on.
const maxHeaderValues = 16384

// raiseHeaderValueLimit lets server take as many header values in a request as kube-apiserver does. By default net/http
// answers 431 to more than 500. MaxHeaderBytes bounds their bytes.
func raiseHeaderValueLimit(server *http.Server) *http.Server {
	server.MaxHeaderValueCount = maxHeaderValues
	return server
}
