// Package statusz holds the tests of the admin port's pages, with a real listproxy before a real
// API server. The program in page looks at the status page with a real browser.
package statusz
