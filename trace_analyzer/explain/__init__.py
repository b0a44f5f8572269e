"""Explain one thing of a report in full: a piece of advice, an idle gap, a kernel, a step, a check, or the verdict."""
