// Package upstream holds the connections to the API server.
package upstream
